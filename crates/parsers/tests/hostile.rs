//! Answers that no model would write: any mixture of markers, brackets and text.

mod common;

use common::{parse, tools};
use proptest::prelude::*;
use saccade_parsers::limits::{MAX_CALLS, MAX_HELD_BYTES};
use saccade_parsers::{AnswerParser, Event, ReasoningFormat, Settings, ToolFormat};

const FORMATS: [ToolFormat; 7] = [
    ToolFormat::Hermes,
    ToolFormat::Llama3Json,
    ToolFormat::Pythonic,
    ToolFormat::Mistral,
    ToolFormat::Qwen3Coder,
    ToolFormat::DeepSeekV3,
    ToolFormat::Phi4Mini,
];

/// What answers are made of, besides the markers of all formats.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "\\",
    "'",
    ":",
    ",",
    ";",
    "=",
    ">",
    "<",
    "\n",
    " ",
    "f",
    "name",
    "\"name\": \"f\"",
    "\"arguments\": {",
    "\"parameters\":",
    "null",
    "12",
    "é",
    "\\ud83d",
    "\\u00",
    "</parameter>",
    "<parameter=city>",
    "<parameter=days>",
    "</function>",
    "f(a=",
    "```json",
    "function",
    "<think>",
    "</think>",
    "{\"name\": \"f\", \"arguments\": {}}",
    "[f(a=1)",
    "f{}",
];

fn settings(format: ToolFormat, reasoning: bool) -> Settings {
    Settings { reasoning: reasoning.then_some(ReasoningFormat::Think), ..tools(format) }
}

fn pieces(format: ToolFormat) -> Vec<&'static str> {
    PIECES.iter().copied().chain(format.markers()).collect()
}

/// A format and a mixture of its pieces.
fn mixture() -> impl Strategy<Value = (ToolFormat, Vec<&'static str>)> {
    prop::sample::select(&FORMATS[..]).prop_flat_map(|format| {
        let piece = prop::sample::select(pieces(format));
        (Just(format), prop::collection::vec(piece, 0..40))
    })
}

fn bytes(events: &[Event]) -> usize {
    let one = |event: &Event| match event {
        Event::Reasoning(t) | Event::Text(t) | Event::Call(t) | Event::Arguments(t) => t.len(),
        Event::CallEnd => 0,
    };
    events.iter().map(one).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_mixture_gives_the_same_on_every_cut((format, mixture) in mixture(), reasoning: bool) {
        let (settings, text) = (settings(format, reasoning), mixture.concat());
        let whole = parse(&settings, [text.as_str()]);
        prop_assert_eq!(&parse(&settings, mixture.iter().copied()), &whole);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&parse(&settings, chars.iter().map(String::as_str)), &whole);
        // What a call's form needs is left out, and nothing else is.
        if whole.calls.is_empty() && !reasoning {
            let squeezed = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(squeezed(&whole.text), squeezed(&text));
        }
    }

    #[test]
    fn any_text_is_text(text: String) {
        for format in FORMATS {
            let answer = parse(&settings(format, true), [text.as_str()]);
            if answer.calls.is_empty() && answer.reasoning.is_empty() {
                prop_assert_eq!(&answer.text, &text);
            }
        }
    }
}

/// What is held back is bounded, however long the answer is, and so is what is said.
#[test]
fn nothing_grows_without_bound() {
    let begins = [
        "",
        "{\"a\": \"",
        "[f(a='",
        "{\"name\": \"f\", \"arguments\": \"",
        "<function=f><parameter=days>",
    ];
    for format in FORMATS {
        let marked = format.markers().map(str::to_owned);
        let opened = format.markers().map(|marker| format!("{marker}{{\"arguments\": {{\"a\": \""));
        for start in begins.into_iter().map(str::to_owned).chain(marked).chain(opened) {
            for repeated in ["{", "[", " ", "x", "\\", "\u{1}"].into_iter().chain(format.markers())
            {
                let mut parser = AnswerParser::new(&settings(format, false));
                let block = repeated.repeat(1024);
                let mut said = bytes(&parser.push(&start));
                let mut taken = start.len();
                while taken < 2 * MAX_HELD_BYTES {
                    said += bytes(&parser.push(&block));
                    taken += block.len();
                    // A control character takes six bytes as JSON.
                    assert!(said <= 8 * taken, "{format}: {start:?} {repeated:?}");
                    let kept = taken.saturating_sub(2 * MAX_HELD_BYTES + block.len());
                    assert!(said > 0 || kept == 0, "{format}: {start:?} {repeated:?}");
                }
            }
        }
    }
}

#[test]
fn calls_are_counted() {
    let call = "<tool_call>{\"name\": \"f\"}</tool_call>";
    let mut parser = AnswerParser::new(&settings(ToolFormat::Hermes, false));
    let events = parser.push(&call.repeat(2 * MAX_CALLS as usize));
    let calls = events.iter().filter(|event| matches!(event, Event::Call(_))).count();
    assert_eq!(calls, MAX_CALLS as usize);
    assert!(parser.is_done());
}
