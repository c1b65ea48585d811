//! A call that is written as a JSON object: `{"name": …, "arguments": {…}}`, with `parameters` as
//! another word for the arguments.

use crate::json::{Span, StringText, ValueSpan};
use crate::limits::{MAX_HELD_BYTES, MAX_NAME_BYTES};
use crate::sink::Sink;

/// How sure it is that an object is a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// A marker says so: a name is enough.
    Marked,
    /// It may be any JSON: it must have a name and arguments, and nothing that calls do not have.
    Bare,
}

/// What became of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More must come.
    Going,
    /// The object is over, and was a call.
    Done,
    /// It is no call: see [`CallObject::take_held`].
    Failed,
    /// The call has begun, but the rest is no JSON: all that follows goes to its arguments.
    Broken,
}

#[derive(Debug)]
enum State {
    Start,
    Key,
    InKey(String),
    Colon(Field),
    Value(Field),
    InName(StringText, String),
    InArguments(ValueSpan),
    InString(StringText),
    InOther(ValueSpan),
    Behind,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Other,
}

/// Reads one object, from its opening brace on.
#[derive(Debug)]
pub struct CallObject {
    trust: Trust,
    state: State,
    /// All of it, as long as it may turn out to be no call.
    held: String,
    name: Option<String>,
    /// Arguments that came before the name.
    early: Option<String>,
    has_begun: bool,
    /// Some of the arguments have been said.
    has_given: bool,
}

impl CallObject {
    /// A reader that wants the opening brace next.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            state: State::Start,
            held: String::new(),
            name: None,
            early: None,
            has_begun: false,
            has_given: false,
        }
    }

    /// What was read of an object that is no call.
    pub fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Whether the call has begun and cannot become text any more.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes a character.
    pub fn push(&mut self, c: char, sink: &mut Sink) -> Progress {
        if !self.has_begun {
            if self.held.len() >= MAX_HELD_BYTES {
                self.held.push(c);
                return Progress::Failed;
            }
            self.held.push(c);
        }
        match self.step(c, sink) {
            Some(progress) => progress,
            None if self.has_begun => {
                self.state = State::Broken;
                sink.argument(c);
                Progress::Broken
            }
            None => Progress::Failed,
        }
    }

    /// One step; `None` if `c` cannot be there.
    fn step(&mut self, c: char, sink: &mut Sink) -> Option<Progress> {
        let state = std::mem::replace(&mut self.state, State::Behind);
        self.state = match state {
            State::Start => (c == '{').then_some(State::Key)?,
            State::Key => match c {
                '"' => State::InKey(String::new()),
                '}' => return self.end(sink),
                c => (c.is_whitespace() || c == ',').then_some(State::Key)?,
            },
            State::InKey(key) if c == '"' => State::Colon(self.field(&key)?),
            State::InKey(mut key) => {
                key.push(c);
                (key.len() <= MAX_NAME_BYTES).then_some(State::InKey(key))?
            }
            State::Colon(field) => match c {
                ':' => State::Value(field),
                c => c.is_whitespace().then_some(State::Colon(field))?,
            },
            State::Value(field) if c.is_whitespace() => State::Value(field),
            State::Value(field) => self.begin_value(field, c, sink)?,
            State::InName(text, name) => self.in_name(text, name, c)?,
            State::InArguments(span) => return self.in_arguments(span, c, sink),
            State::InString(text) => self.in_string(text, c, sink),
            State::InOther(mut span) => match span.push(c) {
                Span::Inside => State::InOther(span),
                Span::Last => State::Behind,
                Span::Behind => return self.behind(c, sink),
                Span::Broken => return None,
            },
            State::Behind => return self.behind(c, sink),
            State::Broken => return None,
        };
        Some(Progress::Going)
    }

    fn field(&self, key: &str) -> Option<Field> {
        match key {
            "name" if self.name.is_none() => Some(Field::Name),
            "arguments" | "parameters" if !self.has_begun && self.early.is_none() => {
                Some(Field::Arguments)
            }
            "type" | "id" => Some(Field::Other),
            _ => (self.trust == Trust::Marked).then_some(Field::Other),
        }
    }

    fn begin_value(&mut self, field: Field, c: char, sink: &mut Sink) -> Option<State> {
        match (field, c) {
            (Field::Name, '"') => Some(State::InName(StringText::default(), String::new())),
            (Field::Name, _) => None,
            (Field::Arguments, '"') => {
                self.begin_arguments(sink);
                Some(State::InString(StringText::default()))
            }
            (Field::Arguments, _) => {
                let mut span = ValueSpan::default();
                let is_inside = span.push(c) == Span::Inside;
                // `null` says that there are none; no other number or word is an argument.
                if !matches!(c, '{' | '[' | 'n') || !is_inside {
                    return None;
                }
                self.begin_arguments(sink);
                if c == 'n' {
                    return Some(State::InOther(span));
                }
                self.give(c.encode_utf8(&mut [0; 4]), sink);
                Some(State::InArguments(span))
            }
            (Field::Other, c) => {
                let mut span = ValueSpan::default();
                (span.push(c) == Span::Inside).then_some(State::InOther(span))
            }
        }
    }

    fn in_name(&mut self, mut text: StringText, mut name: String, c: char) -> Option<State> {
        if text.push(c, &mut name) {
            return (name.len() <= MAX_NAME_BYTES).then_some(State::InName(text, name));
        }
        self.name = Some(name).filter(|name| !name.is_empty());
        self.name.as_ref().map(|_| State::Behind)
    }

    fn in_arguments(&mut self, mut span: ValueSpan, c: char, sink: &mut Sink) -> Option<Progress> {
        let place = span.push(c);
        if place == Span::Broken {
            return None;
        }
        self.give(c.encode_utf8(&mut [0; 4]), sink);
        self.state = if place == Span::Last { State::Behind } else { State::InArguments(span) };
        Some(Progress::Going)
    }

    /// Arguments that are a JSON text inside a JSON string.
    fn in_string(&mut self, mut text: StringText, c: char, sink: &mut Sink) -> State {
        let mut said = String::new();
        let goes_on = text.push(c, &mut said);
        self.give(&said, sink);
        if goes_on { State::InString(text) } else { State::Behind }
    }

    fn behind(&mut self, c: char, sink: &mut Sink) -> Option<Progress> {
        match c {
            ',' => self.state = State::Key,
            '}' => return self.end(sink),
            c => self.state = c.is_whitespace().then_some(State::Behind)?,
        }
        Some(Progress::Going)
    }

    fn begin_arguments(&mut self, sink: &mut Sink) {
        self.early.get_or_insert_default();
        self.begin(sink);
    }

    /// Begins the call if its name is known.
    fn begin(&mut self, sink: &mut Sink) {
        if let Some(name) = self.name.as_ref().filter(|_| !self.has_begun) {
            sink.begin(name);
            self.has_begun = true;
            self.held.clear();
        }
    }

    /// Arguments, for now or for later.
    fn give(&mut self, text: &str, sink: &mut Sink) {
        if self.has_begun {
            self.has_given |= !text.is_empty();
            sink.arguments(text);
        } else if let Some(early) = &mut self.early {
            early.push_str(text);
        }
    }

    fn end(&mut self, sink: &mut Sink) -> Option<Progress> {
        let early = self.early.take();
        if self.name.is_none() || (self.trust == Trust::Bare && early.is_none()) {
            return None;
        }
        if !self.has_begun {
            self.begin(sink);
            self.give(&early.unwrap_or_default(), sink);
        }
        if !self.has_given {
            sink.arguments("{}");
        }
        sink.end_call();
        Some(Progress::Done)
    }
}
