//! Calls in an array, behind a word. Mistral writes `[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`, later
//! `[TOOL_CALLS]name{…}` and `[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}`; Phi-4-mini writes
//! `functools[{"name": …, "arguments": {…}}]`.

use crate::call::{CallObject, Progress, Trust};
use crate::json::{Span, ValueSpan};
use crate::limits::{MAX_NAME_BYTES, MAX_SPACE_BYTES};
use crate::markers::Markers;
use crate::parser::{Machine, is_name_char};
use crate::sink::Sink;

pub const MISTRAL: &[&str] = &["[TOOL_CALLS]"];
pub const MISTRAL_PARTS: &[&str] = &["[CALL_ID]", "[ARGS]"];
pub const PHI: &[&str] = &["functools"];
const ARGS: usize = 1;

/// See the module.
pub struct Array {
    word: &'static str,
    /// A name may come in place of an array.
    takes_names: bool,
    state: State,
    markers: Markers,
    parts: Markers,
    /// What was read since the word and is text if no call follows.
    held: String,
}

enum State {
    Text,
    /// Behind the word.
    Word,
    /// In an array, where an object may begin.
    Element,
    Object(Box<CallObject>),
    /// Behind an object.
    Behind,
    /// The call has begun and is no JSON.
    Broken,
    Name(String),
    /// An id that the model made up.
    Id(String),
    /// Before the arguments of a named call.
    BeforeArguments(String),
    Arguments(ValueSpan),
}

impl Array {
    /// As Mistral's models write.
    pub fn mistral() -> Self {
        Self::new(MISTRAL, true)
    }

    /// As Phi-4-mini writes.
    pub fn phi() -> Self {
        Self::new(PHI, false)
    }

    /// The whole answer is the array.
    pub fn whole() -> Self {
        Self { state: State::Word, ..Self::new(&[""], false) }
    }

    fn new(words: &'static [&'static str], takes_names: bool) -> Self {
        Self {
            word: words[0],
            takes_names,
            state: State::Text,
            markers: Markers::new(words),
            parts: Markers::new(MISTRAL_PARTS),
            held: String::new(),
        }
    }

    fn text(&mut self, c: char, sink: &mut Sink) {
        if self.markers.push(c, |c| sink.text(c)).is_some() {
            self.held = self.word.to_owned();
            self.state = State::Word;
        }
    }

    fn word(&mut self, c: char, sink: &mut Sink) {
        match c {
            '[' => self.hold(c, State::Element),
            c if c.is_whitespace() && self.held.len() < MAX_SPACE_BYTES => {
                self.hold(c, State::Word);
            }
            c if self.takes_names && is_name_char(c) => self.hold(c, State::Name(c.into())),
            c => self.give_up(c, sink),
        }
    }

    fn hold(&mut self, c: char, state: State) {
        self.held.push(c);
        self.state = state;
    }

    /// What was held back is text; `c` may begin the word again.
    fn give_up(&mut self, c: char, sink: &mut Sink) {
        sink.text_str(&std::mem::take(&mut self.held));
        self.state = State::Text;
        self.text(c, sink);
    }

    fn element(&mut self, c: char, sink: &mut Sink) {
        if c == '{' {
            self.state = State::Object(Box::new(CallObject::new(Trust::Marked)));
            self.object(c, sink);
        } else if c.is_whitespace() && self.held.len() < MAX_SPACE_BYTES {
            self.hold(c, State::Element);
        } else {
            self.give_up(c, sink);
        }
    }

    fn object(&mut self, c: char, sink: &mut Sink) {
        let State::Object(object) = &mut self.state else { return };
        match object.push(c, sink) {
            // What came before a call is layout.
            Progress::Going if object.has_begun() => self.held.clear(),
            Progress::Going => {}
            Progress::Done => {
                self.held.clear();
                self.state = State::Behind;
            }
            Progress::Broken => self.state = State::Broken,
            Progress::Failed => {
                let held = object.take_held();
                sink.text_str(&std::mem::take(&mut self.held));
                sink.text_str(&held);
                self.state = State::Text;
            }
        }
    }

    fn behind(&mut self, c: char, sink: &mut Sink) {
        match c {
            ',' => self.hold(c, State::Element),
            ']' => self.state = State::Text,
            c if c.is_whitespace() => {}
            c => self.give_up(c, sink),
        }
    }

    fn name(&mut self, mut name: String, c: char, sink: &mut Sink) {
        if !self.parts.is_idle() || c == '[' {
            return self.part(name, c, sink);
        }
        match c {
            '{' => self.begin_arguments(&name, c, sink),
            c if is_name_char(c) && name.len() < MAX_NAME_BYTES => {
                name.push(c);
                self.hold(c, State::Name(name));
            }
            c if c.is_whitespace() => self.hold(c, State::BeforeArguments(name)),
            c => self.give_up(c, sink),
        }
    }

    /// `[CALL_ID]` or `[ARGS]`.
    fn part(&mut self, name: String, c: char, sink: &mut Sink) {
        let mut is_other = false;
        self.held.push(c);
        let found = self.parts.push(c, |_| is_other = true);
        self.state = match found {
            _ if is_other => {
                self.parts.take_held();
                sink.text_str(&std::mem::take(&mut self.held));
                State::Text
            }
            None => State::Name(name),
            Some(ARGS) => State::BeforeArguments(name),
            Some(_) => State::Id(name),
        };
    }

    fn id(&mut self, name: String, c: char, sink: &mut Sink) {
        if c.is_alphanumeric() && self.held.len() < 2 * MAX_NAME_BYTES {
            self.hold(c, State::Id(name));
        } else {
            self.name(name, c, sink);
        }
    }

    fn before_arguments(&mut self, name: String, c: char, sink: &mut Sink) {
        match c {
            '{' => self.begin_arguments(&name, c, sink),
            c if c.is_whitespace() && self.held.len() < 4 * MAX_NAME_BYTES => {
                self.hold(c, State::BeforeArguments(name));
            }
            c => self.give_up(c, sink),
        }
    }

    fn begin_arguments(&mut self, name: &str, c: char, sink: &mut Sink) {
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
                self.state = State::Text;
            }
            Span::Broken => self.state = State::Broken,
        }
    }
}

impl Machine for Array {
    fn push(&mut self, c: char, sink: &mut Sink) {
        match &mut self.state {
            State::Text => self.text(c, sink),
            State::Word => self.word(c, sink),
            State::Element => self.element(c, sink),
            State::Object(_) => self.object(c, sink),
            State::Behind => self.behind(c, sink),
            State::Broken => sink.argument(c),
            State::Name(name) => {
                let name = std::mem::take(name);
                self.name(name, c, sink);
            }
            State::Id(name) => {
                let name = std::mem::take(name);
                self.id(name, c, sink);
            }
            State::BeforeArguments(name) => {
                let name = std::mem::take(name);
                self.before_arguments(name, c, sink);
            }
            State::Arguments(_) => self.arguments(c, sink),
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        // Cut off within the array, behind a call: the beginning of another one, which is no text.
        if self.held.starts_with(',') {
            return;
        }
        sink.text_str(&std::mem::take(&mut self.held));
        sink.text_str(&self.markers.take_held());
        if let State::Object(object) = &mut self.state
            && !object.has_begun()
        {
            sink.text_str(&object.take_held());
        }
    }
}
