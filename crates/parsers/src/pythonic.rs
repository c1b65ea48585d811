//! `[f(a=1), g(b="x")]` as the whole answer, as Llama 3.2, Llama 4 and ToolACE write.

use crate::limits::{MAX_HELD_BYTES, MAX_NAME_BYTES};
use crate::markers::Markers;
use crate::parser::Machine;
use crate::python::Reader;
use crate::sink::Sink;

pub const MARKERS: &[&str] = &["<|python_start|>", "<|python_tag|>", "<|python_end|>"];

/// See the module.
pub struct Pythonic {
    state: State,
    markers: Markers,
    /// What was read since the last call and is text if no call follows.
    held: String,
}

enum State {
    Start,
    /// In the list, where a call may begin.
    Between,
    Call(Box<Call>),
    Behind,
    /// Behind the list.
    After,
    Text,
}

/// A call up to its closing parenthesis.
#[derive(Default)]
struct Call {
    text: String,
    depth: u32,
    quote: Option<char>,
    is_escaped: bool,
}

impl Default for Pythonic {
    fn default() -> Self {
        Self { state: State::Start, markers: Markers::new(MARKERS), held: String::new() }
    }
}

impl Call {
    /// Whether `c` can be there.
    fn push(&mut self, c: char) -> bool {
        self.text.push(c);
        if let Some(quote) = self.quote {
            match c {
                _ if self.is_escaped => self.is_escaped = false,
                '\\' => self.is_escaped = true,
                c if c == quote => self.quote = None,
                _ => {}
            }
            return self.text.len() < MAX_HELD_BYTES;
        }
        match c {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' if self.depth == 0 => return false,
            ')' | ']' | '}' => self.depth -= 1,
            '"' | '\'' if self.depth > 0 => self.quote = Some(c),
            c if self.depth == 0 => return self.names(c),
            _ => {}
        }
        self.text.len() < MAX_HELD_BYTES
    }

    /// A name is before the first bracket.
    fn names(&self, c: char) -> bool {
        let is_part = c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        is_part && self.text.len() <= MAX_NAME_BYTES
    }

    fn is_whole(&self) -> bool {
        self.depth == 0 && self.quote.is_none() && self.text.ends_with(')')
    }
}

impl Pythonic {
    fn start(&mut self, c: char, sink: &mut Sink) {
        if self.markers.is_idle() && c.is_whitespace() {
            return if self.held.is_empty() { sink.text(c) } else { self.hold_space(c, sink) };
        }
        if self.markers.is_idle() && c == '[' {
            self.held.push(c);
            self.state = State::Between;
            return;
        }
        let mut is_other = false;
        self.held.push(c);
        self.markers.push(c, |_| is_other = true);
        if is_other || self.held.len() > MAX_NAME_BYTES {
            self.markers.take_held();
            self.give_up(sink);
        }
    }

    fn hold_space(&mut self, c: char, sink: &mut Sink) {
        self.held.push(c);
        if self.held.len() > MAX_NAME_BYTES {
            self.give_up(sink);
        }
    }

    fn give_up(&mut self, sink: &mut Sink) {
        sink.text_str(&std::mem::take(&mut self.held));
        self.state = State::Text;
    }

    fn between(&mut self, c: char, sink: &mut Sink) {
        if c.is_whitespace() {
            return self.hold_space(c, sink);
        }
        if c == ']' && sink.whole_calls() > 0 {
            self.held.clear();
            self.state = State::After;
            return;
        }
        if c.is_alphabetic() || c == '_' {
            self.state = State::Call(Box::default());
            return self.call(c, sink);
        }
        self.held.push(c);
        self.give_up(sink);
    }

    fn call(&mut self, c: char, sink: &mut Sink) {
        let State::Call(call) = &mut self.state else { return };
        let goes_on = call.push(c);
        let read = call.is_whole().then(|| Reader::new(&call.text).call());
        match read {
            Some(Some((name, arguments))) => {
                sink.begin(name);
                sink.arguments(&arguments);
                sink.end_call();
                self.held.clear();
                self.state = State::Behind;
            }
            None if goes_on => {}
            None | Some(None) => {
                self.held.push_str(&call.text);
                self.give_up(sink);
            }
        }
    }

    fn behind(&mut self, c: char, sink: &mut Sink) {
        match c {
            ',' => {
                self.held.push(c);
                self.state = State::Between;
            }
            ']' => {
                self.held.clear();
                self.state = State::After;
            }
            c if c.is_whitespace() => self.hold_space(c, sink),
            c => {
                self.held.push(c);
                self.give_up(sink);
            }
        }
    }

    fn after(&mut self, c: char, sink: &mut Sink) {
        // The marker that closes what the first one opened says nothing.
        self.markers.push(c, |c| sink.text(c));
    }
}

impl Machine for Pythonic {
    fn push(&mut self, c: char, sink: &mut Sink) {
        match self.state {
            State::Start => self.start(c, sink),
            State::Between => self.between(c, sink),
            State::Call(_) => self.call(c, sink),
            State::Behind => self.behind(c, sink),
            State::After => self.after(c, sink),
            State::Text => sink.text(c),
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        match &self.state {
            State::Start | State::Between | State::Behind => sink.text_str(&self.held),
            State::Call(call) => {
                sink.text_str(&self.held);
                sink.text_str(&call.text);
            }
            State::After => sink.text_str(&self.markers.take_held()),
            State::Text => {}
        }
    }
}
