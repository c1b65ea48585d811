//! What parsers say, in order.

use crate::limits::MAX_SPACE_BYTES;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What the model thought.
    Reasoning(String),
    /// What it said.
    Text(String),
    /// A call of this function begins.
    Call(String),
    /// Some of the arguments of the call that began last: JSON as the model wrote it.
    Arguments(String),
    /// The call that began last is whole.
    CallEnd,
}

/// Gathers events. Neighbours of a kind become one; white space before a call is layout, not text.
#[derive(Debug, Default)]
pub struct Sink {
    events: Vec<Event>,
    space: String,
    calls: u32,
    is_open: bool,
    /// Something was said since the last call.
    has_said: bool,
}

impl Sink {
    /// The events since the last time.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Calls that are whole.
    pub fn whole_calls(&self) -> u32 {
        self.calls - u32::from(self.is_open)
    }

    /// A character of the answer's text.
    pub fn text(&mut self, c: char) {
        if c.is_whitespace() && self.space.len() < MAX_SPACE_BYTES {
            self.space.push(c);
            return;
        }
        self.flush_space();
        self.say(c);
    }

    /// The same for several characters.
    pub fn text_str(&mut self, text: &str) {
        text.chars().for_each(|c| self.text(c));
    }

    /// A character of the reasoning.
    pub fn reasoning(&mut self, c: char) {
        match self.events.last_mut() {
            Some(Event::Reasoning(text)) => text.push(c),
            _ => self.events.push(Event::Reasoning(c.into())),
        }
    }

    /// A call begins. White space before it is gone.
    pub fn begin(&mut self, name: &str) {
        self.space.clear();
        self.calls += 1;
        self.is_open = true;
        self.has_said = false;
        self.events.push(Event::Call(name.to_owned()));
    }

    /// Some of its arguments.
    pub fn arguments(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(Event::Arguments(arguments)) => arguments.push_str(text),
            _ => self.events.push(Event::Arguments(text.to_owned())),
        }
    }

    /// One character of its arguments.
    pub fn argument(&mut self, c: char) {
        self.arguments(c.encode_utf8(&mut [0; 4]));
    }

    /// It is whole.
    pub fn end_call(&mut self) {
        self.is_open = false;
        self.events.push(Event::CallEnd);
    }

    /// The end of the answer. White space behind the last call is layout as well.
    pub fn finish(&mut self) {
        if self.calls == 0 || self.has_said {
            self.flush_space();
        }
        self.space.clear();
    }

    fn flush_space(&mut self) {
        let space = std::mem::take(&mut self.space);
        space.chars().for_each(|c| self.say(c));
    }

    /// A character of the text that nothing decides about any more.
    pub fn say(&mut self, c: char) {
        self.has_said = true;
        match self.events.last_mut() {
            Some(Event::Text(text)) => text.push(c),
            _ => self.events.push(Event::Text(c.into())),
        }
    }
}
