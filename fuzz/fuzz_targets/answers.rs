//! Answers of models: any text in any format is taken apart, and the same whichever way it is cut.
//! The first byte chooses the format, the second one where to cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_parsers::{AnswerParser, Calls, Event, ReasoningFormat, Settings, ToolFormat};

/// Neighbours of a kind as one.
fn joined(parts: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(Event::Text(text)), Event::Text(more))
            | (Some(Event::Reasoning(text)), Event::Reasoning(more))
            | (Some(Event::Arguments(text)), Event::Arguments(more)) => text.push_str(&more),
            (_, part) => all.push(part),
        }
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let &[format, cut, ref text @ ..] = data else { return };
    let names: Vec<&str> = ToolFormat::names().collect();
    let settings = Settings {
        reasoning: (format & 0x80 != 0).then_some(ReasoningFormat::Think),
        calls: match usize::from(format & 0x7f) % (names.len() + 2) {
            0 => Some(Calls::List),
            1 => Some(Calls::ArgumentsOf("f".into())),
            at => names[at - 2].parse().ok().map(Calls::Format),
        },
        ..Settings::default()
    };
    let text = String::from_utf8_lossy(text);
    let parse = |pieces: &[&str]| {
        let mut parser = AnswerParser::new(&settings);
        let mut parts: Vec<Event> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
        parts.append(&mut parser.finish());
        joined(parts)
    };
    let (begin, end) = text.split_at(text.floor_char_boundary(usize::from(cut)));
    assert_eq!(parse(&[begin, end]), parse(&[&text]));
});
