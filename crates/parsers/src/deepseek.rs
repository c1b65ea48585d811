//! DeepSeek's calls: between markers, V3 and R1 with the arguments in a fence, V3.1 without.

use crate::json::{Span, ValueSpan};
use crate::limits::{MAX_NAME_BYTES, MAX_SPACE_BYTES};
use crate::markers::Markers;
use crate::parser::{Machine, is_name_char};
use crate::sink::Sink;

pub const MARKERS: &[&str] = &[
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
];
const ALL_BEGIN: usize = 0;
const BEGIN: usize = 1;
const SEPARATOR: usize = 2;
const END: usize = 3;
const ALL_END: usize = 4;
const FENCE: &str = "```json";

/// See the module.
pub struct DeepSeek {
    state: State,
    markers: Markers,
    /// What was read since the last call and is text if no call follows.
    held: String,
}

enum State {
    Text,
    /// Within the calls, outside of any.
    Between,
    /// Between a call's first marker and the separator: its type or its name.
    Head(String),
    /// Behind the separator.
    Rest(String),
    /// A name that came behind the separator, and the fence so far.
    Fence(String, String),
    Arguments(ValueSpan),
    /// The call has begun and is no JSON: what comes before the next marker is its arguments.
    Broken,
    /// Behind the arguments.
    Behind,
}

impl Default for DeepSeek {
    fn default() -> Self {
        Self { state: State::Text, markers: Markers::new(MARKERS), held: String::new() }
    }
}

impl DeepSeek {
    fn text(&mut self, c: char, sink: &mut Sink) {
        match self.markers.push(c, |c| sink.text(c)) {
            Some(ALL_BEGIN) => self.hold(MARKERS[ALL_BEGIN], State::Between),
            Some(BEGIN) => self.hold(MARKERS[BEGIN], State::Head(String::new())),
            Some(other) => sink.text_str(MARKERS[other]),
            None => {}
        }
    }

    fn hold(&mut self, text: &str, state: State) {
        self.held.push_str(text);
        self.state = state;
    }

    /// What was held back is text; `c` may begin a marker.
    fn give_up(&mut self, c: Option<char>, sink: &mut Sink) {
        sink.text_str(&std::mem::take(&mut self.held));
        self.state = State::Text;
        if let Some(c) = c {
            self.text(c, sink);
        }
    }

    fn between(&mut self, c: char, sink: &mut Sink) {
        let mut other = String::new();
        match self.markers.push(c, |c| other.push(c)) {
            Some(BEGIN) => self.hold(MARKERS[BEGIN], State::Head(String::new())),
            Some(ALL_END) if sink.whole_calls() > 0 => {
                self.held.clear();
                self.state = State::Text;
            }
            Some(found) => {
                self.held.push_str(MARKERS[found]);
                self.give_up(None, sink);
            }
            None if other.trim().is_empty() && self.held.len() < MAX_SPACE_BYTES => {
                self.held.push_str(&other);
            }
            None => {
                self.held.push_str(&other);
                self.give_up(None, sink);
            }
        }
    }

    fn head(&mut self, mut head: String, c: char, sink: &mut Sink) {
        let mut other = String::new();
        let found = self.markers.push(c, |c| other.push(c));
        self.held.push_str(&other);
        let fits = other.chars().all(is_name_char) && head.len() + other.len() <= MAX_NAME_BYTES;
        head.push_str(&other);
        match found {
            _ if !fits => self.give_up(None, sink),
            Some(SEPARATOR) => self.hold(MARKERS[SEPARATOR], State::Rest(head)),
            Some(found) => {
                self.held.push_str(MARKERS[found]);
                self.give_up(None, sink);
            }
            None => self.state = State::Head(head),
        }
    }

    /// V3.1 has the arguments here, V3 the name.
    fn rest(&mut self, head: String, c: char, sink: &mut Sink) {
        if c == '{' && !head.is_empty() {
            self.begin(&head, c, sink);
        } else if c.is_whitespace() && self.held.len() < MAX_SPACE_BYTES {
            self.held.push(c);
            self.state = State::Rest(head);
        } else if is_name_char(c) && head == "function" {
            self.held.push(c);
            self.state = State::Fence(c.into(), String::new());
        } else {
            self.give_up(Some(c), sink);
        }
    }

    fn fence(&mut self, mut name: String, mut fence: String, c: char, sink: &mut Sink) {
        let is_over = fence.trim() == FENCE || fence.trim() == "```";
        if c == '{' && (is_over || fence.trim().is_empty()) {
            return self.begin(&name, c, sink);
        }
        if fence.is_empty() && is_name_char(c) && name.len() < MAX_NAME_BYTES {
            name.push(c);
        } else {
            fence.push(c);
        }
        let begun = fence.trim_start();
        let fits = FENCE.starts_with(begun.trim_end()) && fence.len() <= MAX_SPACE_BYTES;
        if !fits {
            return self.give_up(Some(c), sink);
        }
        self.held.push(c);
        self.state = State::Fence(name, fence);
    }

    fn begin(&mut self, name: &str, c: char, sink: &mut Sink) {
        self.held.clear();
        sink.begin(name);
        self.state = State::Arguments(ValueSpan::default());
        self.arguments(c, sink);
    }

    fn arguments(&mut self, c: char, sink: &mut Sink) {
        let State::Arguments(span) = &mut self.state else { return };
        let place = span.push(c);
        sink.argument(c);
        match place {
            Span::Inside | Span::Behind => {}
            Span::Last => {
                sink.end_call();
                self.state = State::Behind;
            }
            Span::Broken => self.state = State::Broken,
        }
    }

    fn broken(&mut self, c: char, sink: &mut Sink) {
        match self.markers.push(c, |c| sink.argument(c)) {
            Some(END | ALL_END) => {
                sink.end_call();
                self.state = State::Between;
            }
            Some(found) => sink.arguments(MARKERS[found]),
            None => {}
        }
    }

    /// The fence's end and the marker of the call's end say nothing.
    fn behind(&mut self, c: char, sink: &mut Sink) {
        let mut other = String::new();
        match self.markers.push(c, |c| other.push(c)) {
            Some(BEGIN) => self.hold(MARKERS[BEGIN], State::Head(String::new())),
            Some(ALL_END) => self.state = State::Text,
            Some(_) => self.state = State::Between,
            None if other.chars().all(|c| c.is_whitespace() || c == '`') => {}
            None => {
                self.state = State::Text;
                sink.text_str(&other);
            }
        }
    }
}

impl Machine for DeepSeek {
    fn push(&mut self, c: char, sink: &mut Sink) {
        match &mut self.state {
            State::Text => self.text(c, sink),
            State::Between => self.between(c, sink),
            State::Head(head) => {
                let head = std::mem::take(head);
                self.head(head, c, sink);
            }
            State::Rest(head) => {
                let head = std::mem::take(head);
                self.rest(head, c, sink);
            }
            State::Fence(name, fence) => {
                let (name, fence) = (std::mem::take(name), std::mem::take(fence));
                self.fence(name, fence, c, sink);
            }
            State::Arguments(_) => self.arguments(c, sink),
            State::Broken => self.broken(c, sink),
            State::Behind => self.behind(c, sink),
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        let held = std::mem::take(&mut self.held) + &self.markers.take_held();
        match self.state {
            State::Broken => sink.arguments(&held),
            _ => sink.text_str(&held),
        }
    }
}
