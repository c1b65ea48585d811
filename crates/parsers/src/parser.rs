//! The parser of one answer: reasoning first, then text and calls.

use std::sync::Arc;

use crate::formats::{Calls, ReasoningFormat};
use crate::limits::MAX_CALLS;
use crate::reasoning::Reasoning;
use crate::schema::Schemas;
use crate::sink::{Event, Sink};

/// Reads calls in one format, character by character: what it says can therefore not depend on how
/// the text was cut.
pub(crate) trait Machine: Send {
    /// Takes a character.
    fn push(&mut self, c: char, sink: &mut Sink);
    /// The end: what was held back is said after all.
    fn finish(&mut self, sink: &mut Sink);
}

/// Characters of a function's name in formats that write it without quotes.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// What is to be found in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Absent: the answer has no reasoning.
    pub reasoning: Option<ReasoningFormat>,
    /// The answer begins within the reasoning.
    pub begins_inside: bool,
    /// Absent: no calls.
    pub calls: Option<Calls>,
    /// What the tools say about their parameters.
    pub schemas: Arc<Schemas>,
    /// The answer ends with its first call.
    pub one_call: bool,
}

/// Takes one answer apart.
pub struct AnswerParser {
    reasoning: Reasoning,
    machine: Option<Box<dyn Machine>>,
    sink: Sink,
    max_calls: u32,
    is_done: bool,
}

impl AnswerParser {
    /// A parser for one answer.
    pub fn new(settings: &Settings) -> Self {
        let reasoning = match settings.reasoning {
            Some(format) => Reasoning::new(format.markers(), settings.begins_inside),
            None => Reasoning::none(),
        };
        Self {
            reasoning,
            machine: settings.calls.as_ref().map(|calls| calls.machine(&settings.schemas)),
            sink: Sink::default(),
            max_calls: if settings.one_call { 1 } else { MAX_CALLS },
            is_done: false,
        }
    }

    /// Whether the model is thinking.
    pub fn is_reasoning(&self) -> bool {
        self.reasoning.is_inside()
    }

    /// Whether the answer has all calls that it may have. What comes then is not read.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        for c in text.chars() {
            if self.is_done {
                break;
            }
            let machine = &mut self.machine;
            self.reasoning.push(c, &mut self.sink, &mut |c, sink| answer(machine, c, sink));
            self.is_done = self.sink.whole_calls() >= self.max_calls;
        }
        self.sink.take()
    }

    /// The end of the answer.
    pub fn finish(&mut self) -> Vec<Event> {
        if !self.is_done {
            let machine = &mut self.machine;
            self.reasoning.finish(&mut self.sink, &mut |c, sink| answer(machine, c, sink));
            if let Some(machine) = machine {
                machine.finish(&mut self.sink);
            }
        }
        self.sink.finish();
        self.sink.take()
    }
}

fn answer(machine: &mut Option<Box<dyn Machine>>, c: char, sink: &mut Sink) {
    match machine {
        Some(machine) => machine.push(c, sink),
        // No call can follow: white space is text at once.
        None => sink.say(c),
    }
}
