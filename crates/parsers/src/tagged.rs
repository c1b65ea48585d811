//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as Hermes, Qwen 2.5 and Qwen 3 write.

use crate::call::{CallObject, Progress, Trust};
use crate::limits::MAX_SPACE_BYTES;
use crate::markers::Markers;
use crate::parser::Machine;
use crate::sink::Sink;

pub const MARKERS: &[&str] = &["<tool_call>", "</tool_call>"];
const OPEN: usize = 0;

/// See the module.
pub struct Tagged {
    state: State,
    markers: Markers,
}

enum State {
    Text,
    /// Behind the opening tag, with the white space since.
    Open(String),
    Object(Box<CallObject>),
    /// The call has begun and is no JSON: what comes before the closing tag is its arguments.
    Broken,
    /// Behind an object.
    Behind,
}

impl Default for Tagged {
    fn default() -> Self {
        Self { state: State::Text, markers: Markers::new(MARKERS) }
    }
}

impl Tagged {
    fn object() -> State {
        State::Object(Box::new(CallObject::new(Trust::Marked)))
    }

    fn text(&mut self, c: char, sink: &mut Sink) {
        match self.markers.push(c, |c| sink.text(c)) {
            Some(OPEN) => self.state = State::Open(String::new()),
            Some(other) => sink.text_str(MARKERS[other]),
            None => {}
        }
    }

    fn open(&mut self, mut space: String, c: char, sink: &mut Sink) {
        if c == '{' {
            self.state = Self::object();
            return self.object_char(c, sink);
        }
        if c.is_whitespace() && space.len() < MAX_SPACE_BYTES {
            space.push(c);
            self.state = State::Open(space);
            return;
        }
        sink.text_str(MARKERS[OPEN]);
        sink.text_str(&space);
        self.text(c, sink);
    }

    fn object_char(&mut self, c: char, sink: &mut Sink) {
        let State::Object(object) = &mut self.state else { return };
        match object.push(c, sink) {
            Progress::Going => {}
            Progress::Done => self.state = State::Behind,
            Progress::Broken => self.state = State::Broken,
            Progress::Failed => {
                let held = object.take_held();
                self.state = State::Text;
                sink.text_str(MARKERS[OPEN]);
                sink.text_str(&held);
            }
        }
    }

    fn broken(&mut self, c: char, sink: &mut Sink) {
        match self.markers.push(c, |c| sink.argument(c)) {
            Some(OPEN) => sink.arguments(MARKERS[OPEN]),
            Some(_) => {
                sink.end_call();
                self.state = State::Text;
            }
            None => {}
        }
    }

    /// The closing tag, another object, or something else that was not to be expected.
    fn behind(&mut self, c: char, sink: &mut Sink) {
        if c == '{' && self.markers.is_idle() {
            self.state = Self::object();
            return self.object_char(c, sink);
        }
        let mut is_text = false;
        let found = self.markers.push(c, |c| {
            is_text |= !c.is_whitespace();
            sink.text(c);
        });
        match found {
            Some(OPEN) => self.state = State::Open(String::new()),
            Some(_) => self.state = State::Text,
            None if is_text => self.state = State::Text,
            None => {}
        }
    }
}

impl Machine for Tagged {
    fn push(&mut self, c: char, sink: &mut Sink) {
        match &mut self.state {
            State::Text => self.text(c, sink),
            State::Open(space) => {
                let space = std::mem::take(space);
                self.state = State::Text;
                self.open(space, c, sink);
            }
            State::Object(_) => self.object_char(c, sink),
            State::Broken => self.broken(c, sink),
            State::Behind => self.behind(c, sink),
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        let held = self.markers.take_held();
        match &mut self.state {
            State::Text | State::Behind => sink.text_str(&held),
            State::Open(space) => {
                sink.text_str(MARKERS[OPEN]);
                sink.text_str(space);
            }
            State::Object(object) if !object.has_begun() => {
                sink.text_str(MARKERS[OPEN]);
                sink.text_str(&object.take_held());
            }
            State::Object(_) => {}
            State::Broken => sink.arguments(&held),
        }
    }
}
