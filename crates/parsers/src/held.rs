//! Arguments alone: a grammar holds the answer to the parameters of one function.

use crate::json::{Span, ValueSpan};
use crate::parser::Machine;
use crate::sink::Sink;

/// All of the answer is the arguments of one call.
pub struct Arguments {
    name: String,
    state: State,
}

enum State {
    Before,
    Inside(ValueSpan),
    Behind,
}

impl Arguments {
    /// Of a call of this function.
    pub fn of(name: &str) -> Self {
        Self { name: name.to_owned(), state: State::Before }
    }
}

impl Machine for Arguments {
    fn push(&mut self, c: char, sink: &mut Sink) {
        if matches!(self.state, State::Before) && !c.is_whitespace() {
            sink.begin(&self.name);
            self.state = State::Inside(ValueSpan::default());
        }
        let State::Inside(span) = &mut self.state else { return };
        let place = span.push(c);
        sink.argument(c);
        if place == Span::Last {
            sink.end_call();
            self.state = State::Behind;
        }
    }

    fn finish(&mut self, _sink: &mut Sink) {}
}
