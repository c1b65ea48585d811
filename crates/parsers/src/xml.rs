//! `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`, as
//! Qwen3-Coder writes. Values have no quotes: the tool's schema says what they are.

use std::sync::Arc;

use serde_json::Value;

use crate::json::{push_escaped, quoted};
use crate::limits::{MAX_HELD_BYTES, MAX_NAME_BYTES, MAX_SPACE_BYTES};
use crate::markers::Markers;
use crate::parser::{Machine, is_name_char};
use crate::python::Reader;
use crate::schema::{Schemas, Types};
use crate::sink::Sink;

pub const MARKERS: &[&str] = &["<tool_call>", "</tool_call>", "<function="];
const OPEN: usize = 0;
const CLOSE: usize = 1;
const BODY: &[&str] = &["<parameter=", "</function>"];
const VALUE: &[&str] = &["\n</parameter>", "</parameter>"];

/// See the module.
pub struct Xml {
    schemas: Arc<Schemas>,
    state: State,
    markers: Markers,
    body: Markers,
    value: Markers,
    /// What was read since `<tool_call>` and is text if no function follows.
    held: String,
    function: String,
    /// Parameters of the call so far.
    parameters: u32,
}

enum State {
    Text,
    /// Behind `<tool_call>`.
    Open,
    Name(String),
    /// Between parameters.
    Body,
    Key(String),
    /// A value that is a text: it can be said as it comes.
    TextBegin,
    InText,
    /// A value whose type is known when all of it is there.
    Typed(Types, String),
    /// Behind a function.
    Behind,
}

impl Xml {
    /// A parser for calls of these tools.
    pub fn new(schemas: Arc<Schemas>) -> Self {
        Self {
            schemas,
            state: State::Text,
            markers: Markers::new(MARKERS),
            body: Markers::new(BODY),
            value: Markers::new(VALUE),
            held: String::new(),
            function: String::new(),
            parameters: 0,
        }
    }

    /// Text, with or without a function before it.
    fn text(&mut self, c: char, sink: &mut Sink) {
        let is_behind = matches!(self.state, State::Behind);
        let mut is_text = false;
        let found = self.markers.push(c, |c| {
            is_text |= !c.is_whitespace();
            sink.text(c);
        });
        match found {
            Some(OPEN) => self.hold(MARKERS[OPEN], State::Open),
            Some(CLOSE) if is_behind => self.state = State::Text,
            Some(CLOSE) => sink.text_str(MARKERS[CLOSE]),
            Some(function) => self.hold(MARKERS[function], State::Name(String::new())),
            None if is_text => self.state = State::Text,
            None => {}
        }
    }

    fn hold(&mut self, text: &str, state: State) {
        self.held.push_str(text);
        self.state = state;
    }

    fn give_up(&mut self, sink: &mut Sink) {
        sink.text_str(&std::mem::take(&mut self.held));
        self.state = State::Text;
    }

    fn open(&mut self, c: char, sink: &mut Sink) {
        if self.markers.is_idle() && c.is_whitespace() && self.held.len() < MAX_SPACE_BYTES {
            return self.held.push(c);
        }
        let mut other = String::new();
        match self.markers.push(c, |c| other.push(c)) {
            Some(found) if other.is_empty() && found != OPEN && found != CLOSE => {
                self.hold(MARKERS[found], State::Name(String::new()));
            }
            Some(found) => {
                self.held.push_str(&other);
                self.give_up(sink);
                match found {
                    OPEN => self.hold(MARKERS[OPEN], State::Open),
                    _ => sink.text_str(MARKERS[found]),
                }
            }
            None if other.is_empty() => {}
            None => {
                self.held.push_str(&other);
                self.give_up(sink);
            }
        }
    }

    fn name(&mut self, mut name: String, c: char, sink: &mut Sink) {
        if c == '>' && !name.is_empty() {
            self.held.clear();
            self.parameters = 0;
            sink.begin(&name);
            sink.argument('{');
            self.function = name;
            self.state = State::Body;
        } else if is_name_char(c) && name.len() < MAX_NAME_BYTES {
            name.push(c);
            self.held.push(c);
            self.state = State::Name(name);
        } else {
            self.give_up(sink);
            self.text(c, sink);
        }
    }

    fn body(&mut self, c: char, sink: &mut Sink) {
        let mut other = String::new();
        match self.body.push(c, |c| other.extend((!c.is_whitespace()).then_some(c))) {
            Some(0) => self.state = State::Key(String::new()),
            Some(_) => self.end_function(State::Behind, sink),
            None if other.is_empty() => {}
            None => {
                // The model has left the form: what it goes on with is text.
                self.end_function(State::Text, sink);
                other.push_str(&self.body.take_held());
                sink.text_str(&other);
            }
        }
    }

    fn end_function(&mut self, state: State, sink: &mut Sink) {
        sink.argument('}');
        sink.end_call();
        self.state = state;
    }

    fn key(&mut self, mut key: String, c: char, sink: &mut Sink) {
        if c != '>' && key.len() < MAX_NAME_BYTES {
            key.push(c);
            self.state = State::Key(key);
            return;
        }
        sink.arguments(if self.parameters == 0 { "" } else { ", " });
        self.parameters += 1;
        sink.arguments(&quoted(&key));
        sink.arguments(": ");
        let types = self.schemas.types(&self.function, &key);
        self.state = if types.is_text() {
            sink.argument('"');
            State::TextBegin
        } else {
            State::Typed(types, String::new())
        };
    }

    fn in_text(&mut self, c: char, sink: &mut Sink) {
        // One line feed behind the opening tag and one before the closing one are layout.
        let is_first = matches!(self.state, State::TextBegin);
        if is_first {
            self.state = State::InText;
            if c == '\n' {
                return;
            }
        }
        let mut said = String::new();
        if self.value.push(c, |c| push_escaped(c, &mut said)).is_some() {
            said.push('"');
            self.state = State::Body;
        }
        sink.arguments(&said);
    }

    fn typed(&mut self, types: Types, mut text: String, c: char, sink: &mut Sink) {
        if self.value.push(c, |c| text.push(c)).is_some() {
            sink.arguments(&typed_value(types, &text));
            self.state = State::Body;
        } else if text.len() < MAX_HELD_BYTES {
            self.state = State::Typed(types, text);
        } else {
            // Too long to wait for: a text.
            let mut said = String::from("\"");
            let text = text.strip_prefix('\n').unwrap_or(&text);
            text.chars().for_each(|c| push_escaped(c, &mut said));
            sink.arguments(&said);
            self.state = State::InText;
        }
    }
}

/// A value of one of the types if the text can be read as such, else a text.
fn typed_value(types: Types, text: &str) -> String {
    let trimmed = text.trim();
    if serde_json::from_str::<Value>(trimmed).is_ok_and(|value| types.allow(&value)) {
        return trimmed.to_owned();
    }
    let python = Reader::new(trimmed).only_value();
    let read = python.filter(|json| {
        serde_json::from_str::<Value>(json).is_ok_and(|v| !v.is_string() && types.allow(&v))
    });
    read.unwrap_or_else(|| quoted(text.strip_prefix('\n').unwrap_or(text)))
}

impl Machine for Xml {
    fn push(&mut self, c: char, sink: &mut Sink) {
        match &mut self.state {
            State::Text | State::Behind => self.text(c, sink),
            State::Open => self.open(c, sink),
            State::Name(name) => {
                let name = std::mem::take(name);
                self.name(name, c, sink);
            }
            State::Body => self.body(c, sink),
            State::Key(key) => {
                let key = std::mem::take(key);
                self.key(key, c, sink);
            }
            State::TextBegin | State::InText => self.in_text(c, sink),
            State::Typed(types, text) => {
                let (types, text) = (*types, std::mem::take(text));
                self.typed(types, text, c, sink);
            }
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        sink.text_str(&std::mem::take(&mut self.held));
        sink.text_str(&self.markers.take_held());
        let mut said = String::new();
        if let State::Typed(_, text) = &self.state {
            said.push('"');
            let text = text.strip_prefix('\n').unwrap_or(text);
            text.chars().for_each(|c| push_escaped(c, &mut said));
        }
        self.value.take_held().chars().for_each(|c| push_escaped(c, &mut said));
        sink.arguments(&said);
    }
}
