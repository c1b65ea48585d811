//! `{"name": …, "parameters": {…}}` as the whole answer, several of them with `;` between, as
//! Llama 3 writes; `<|python_tag|>` may come first.

use crate::call::{CallObject, Progress, Trust};
use crate::limits::MAX_SPACE_BYTES;
use crate::markers::Markers;
use crate::parser::Machine;
use crate::sink::Sink;

pub const MARKERS: &[&str] = &["<|python_tag|>"];

/// See the module.
pub struct Bare {
    state: State,
    markers: Markers,
    /// What was read since the last call and is text if no call follows.
    held: String,
    trust: Trust,
}

enum State {
    /// Before the first object, or between two.
    Between,
    Object(Box<CallObject>),
    /// The call has begun and is no JSON.
    Broken,
    Text,
}

impl Default for Bare {
    fn default() -> Self {
        Self {
            state: State::Between,
            markers: Markers::new(MARKERS),
            held: String::new(),
            trust: Trust::Bare,
        }
    }
}

impl Bare {
    fn between(&mut self, c: char, sink: &mut Sink) {
        let is_idle = self.markers.is_idle();
        if is_idle && c == '{' {
            self.state = State::Object(Box::new(CallObject::new(self.trust)));
            return self.object(c, sink);
        }
        // One separator is behind a call; nothing but white space is before the first one.
        let has_separator = self.held.contains([';', ',']);
        let separates = matches!(c, ';' | ',') && sink.whole_calls() > 0 && !has_separator;
        if is_idle && self.held.is_empty() && c.is_whitespace() {
            return sink.text(c);
        }
        if is_idle && (separates || (c.is_whitespace() && self.held.len() < MAX_SPACE_BYTES)) {
            return self.held.push(c);
        }
        let mut other = String::new();
        if let Some(found) = self.markers.push(c, |c| other.push(c)) {
            self.held.push_str(MARKERS[found]);
            self.trust = Trust::Marked;
        }
        if !other.is_empty() || self.held.len() > MAX_SPACE_BYTES {
            self.held.push_str(&other);
            self.held.push_str(&self.markers.take_held());
            self.give_up(sink);
        }
    }

    /// What was held back is text, and all that follows.
    fn give_up(&mut self, sink: &mut Sink) {
        self.state = State::Text;
        sink.text_str(&std::mem::take(&mut self.held));
    }

    fn object(&mut self, c: char, sink: &mut Sink) {
        let State::Object(object) = &mut self.state else { return };
        match object.push(c, sink) {
            Progress::Going => {}
            Progress::Done => {
                self.held.clear();
                self.state = State::Between;
            }
            Progress::Broken => self.state = State::Broken,
            Progress::Failed => {
                let held = object.take_held();
                self.held.push_str(&held);
                self.give_up(sink);
            }
        }
    }
}

impl Machine for Bare {
    fn push(&mut self, c: char, sink: &mut Sink) {
        match self.state {
            State::Between => self.between(c, sink),
            State::Object(_) => self.object(c, sink),
            State::Broken => sink.argument(c),
            State::Text => sink.text(c),
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        let held = std::mem::take(&mut self.held) + &self.markers.take_held();
        match &mut self.state {
            State::Between => sink.text_str(&held),
            State::Object(object) if !object.has_begun() => {
                sink.text_str(&held);
                sink.text_str(&object.take_held());
            }
            State::Object(_) | State::Broken | State::Text => {}
        }
    }
}
