//! What a model thinks before it answers, between two markers at the beginning.

use crate::limits::MAX_SPACE_BYTES;
use crate::markers::Markers;
use crate::sink::Sink;

const OPEN: usize = 0;

/// Separates the reasoning from what follows.
pub struct Reasoning {
    state: State,
    markers: Markers,
    /// White space that is layout if a marker follows.
    space: String,
    has_thought: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before anything was said.
    Start,
    Inside,
    /// Behind the closing marker, before the next text.
    Behind,
    Answer,
}

impl Reasoning {
    /// For reasoning between `markers`; `begins_inside` if the prompt has opened it.
    pub fn new(markers: &'static [&'static str], begins_inside: bool) -> Self {
        Self {
            state: if begins_inside { State::Inside } else { State::Start },
            markers: Markers::new(markers),
            space: String::new(),
            has_thought: false,
        }
    }

    /// All that comes is the answer.
    pub fn none() -> Self {
        Self { state: State::Answer, ..Self::new(&[], false) }
    }

    /// Whether the model is thinking.
    pub fn is_inside(&self) -> bool {
        self.state == State::Inside
    }

    /// Takes a character; what belongs to the answer goes to `answer`.
    pub fn push(&mut self, c: char, sink: &mut Sink, answer: &mut impl FnMut(char, &mut Sink)) {
        match self.state {
            State::Start => self.start(c, sink, answer),
            State::Inside => self.inside(c, sink),
            State::Behind if c == '\n' => {}
            State::Behind | State::Answer => {
                self.state = State::Answer;
                answer(c, sink);
            }
        }
    }

    /// The end of the answer.
    pub fn finish(&mut self, sink: &mut Sink, answer: &mut impl FnMut(char, &mut Sink)) {
        let held = self.markers.take_held();
        match self.state {
            State::Start => {
                let space = std::mem::take(&mut self.space);
                space.chars().chain(held.chars()).for_each(|c| answer(c, sink));
            }
            State::Inside => held.chars().for_each(|c| self.think(c, sink)),
            State::Behind | State::Answer => {}
        }
    }

    fn start(&mut self, c: char, sink: &mut Sink, answer: &mut impl FnMut(char, &mut Sink)) {
        if self.markers.is_idle() && c.is_whitespace() && self.space.len() < MAX_SPACE_BYTES {
            self.space.push(c);
            return;
        }
        let mut said = String::new();
        let found = self.markers.push(c, |c| said.push(c));
        match found {
            Some(OPEN) if said.is_empty() => {
                self.space.clear();
                self.state = State::Inside;
            }
            None if said.is_empty() => {}
            found => {
                said.push_str(&self.markers.take_held());
                said.push_str(found.map_or("", |found| self.markers.text(found)));
                let space = std::mem::take(&mut self.space);
                self.state = State::Answer;
                space.chars().chain(said.chars()).for_each(|c| answer(c, sink));
            }
        }
    }

    fn inside(&mut self, c: char, sink: &mut Sink) {
        let mut said = String::new();
        let found = self.markers.push(c, |c| said.push(c));
        said.chars().for_each(|c| self.think(c, sink));
        match found {
            // A prompt has opened it, and the model does so again.
            Some(OPEN) if !self.has_thought => {}
            Some(OPEN) => {
                self.markers.text(OPEN).chars().for_each(|c| self.think(c, sink));
            }
            Some(_) => {
                self.space.clear();
                self.state = State::Behind;
            }
            None => {}
        }
    }

    /// Line feeds around the reasoning are layout.
    fn think(&mut self, c: char, sink: &mut Sink) {
        if c == '\n' && (!self.has_thought || self.space.len() < MAX_SPACE_BYTES) {
            if self.has_thought {
                self.space.push(c);
            }
            return;
        }
        self.has_thought = true;
        std::mem::take(&mut self.space).chars().for_each(|c| sink.reasoning(c));
        sink.reasoning(c);
    }
}
