//! What is in the samples, and that it does not depend on how they are cut.

mod common;

use common::{Answer, calls, parse, samples, thinking, tools};
use proptest::prelude::*;
use saccade_parsers::{AnswerParser, Calls, Event, ReasoningFormat, Settings, ToolFormat};

#[test]
fn every_sample_is_understood() {
    for (settings, text, said, calls) in samples() {
        let answer = parse(&settings, [text]);
        let whole: Vec<_> = calls.iter().map(|(n, a)| ((*n).into(), (*a).into(), true)).collect();
        assert_eq!((answer.text.as_str(), answer.calls), (said, whole), "{text}");
    }
}

#[test]
fn every_cut_of_every_sample_gives_the_same() {
    for (settings, text, ..) in samples() {
        for end in text.char_indices().map(|(i, c)| i + c.len_utf8()) {
            let text = &text[..end];
            let whole = parse(&settings, [text]);
            let cuts: Vec<usize> = text.char_indices().map(|(i, _)| i).skip(1).collect();
            for &cut in &cuts {
                let (a, b) = text.split_at(cut);
                assert_eq!(parse(&settings, [a, b]), whole, "{a:?} | {b:?}");
            }
            let chars: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(parse(&settings, chars.iter().map(String::as_str)), whole, "{text}");
        }
    }
}

proptest! {
    #[test]
    fn several_cuts_give_the_same(
        index in 0..samples().len(), cuts in prop::collection::vec(0usize..400, 0..12)
    ) {
        let (settings, text, ..) = samples().swap_remove(index);
        prop_assert_eq!(parse(&settings, pieces(text, &cuts)), parse(&settings, [text]));
    }
}

/// `text` cut near these places.
fn pieces<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(*cut)).collect();
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([text.len()]);
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// Arguments reach the client while the model writes them.
#[test]
fn arguments_are_said_as_they_come() {
    let mut parser = AnswerParser::new(&tools(ToolFormat::Hermes));
    let mut answer = Answer::default();
    answer.add(parser.push("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"long"));
    assert_eq!(answer.calls, [("f".into(), "{\"a\": \"long".into(), false)]);
    answer.add(parser.push(" text\"}}"));
    assert!(answer.calls[0].2);
    let mut parser = AnswerParser::new(&tools(ToolFormat::Qwen3Coder));
    let mut answer = Answer::default();
    answer.add(parser.push("<function=write_file><parameter=code>\nimport"));
    assert_eq!(answer.calls, [("write_file".into(), "{\"code\": \"import".into(), false)]);
}

/// Only where a call may follow is white space held back.
#[test]
fn white_space_waits_for_a_call_only() {
    let mut parser = AnswerParser::new(&Settings {
        reasoning: Some(ReasoningFormat::Think),
        ..Settings::default()
    });
    assert_eq!(parser.push("So "), [Event::Text("So ".into())]);
    let mut parser = AnswerParser::new(&tools(ToolFormat::Hermes));
    assert_eq!(parser.push("So "), [Event::Text("So".into())]);
    assert_eq!(parser.push("be"), [Event::Text(" be".into())]);
}

/// Nor is what lies between calls ever text.
#[test]
fn an_array_that_is_cut_off_behind_a_call_leaves_no_text() {
    let list = r#"[{"name": "f", "parameters": {"a": 1}} , {"name": "g", "parameters": {}}]"#;
    let begun = list.find("{\"a").unwrap() + 1;
    let formats = [(calls(Calls::List), ""), (tools(ToolFormat::Mistral), "[TOOL_CALLS]")];
    for (settings, word) in formats {
        for end in begun..=list.len() {
            let answer = parse(&settings, [word, &list[..end]]);
            assert_eq!(answer.text, "", "{}", &list[..end]);
        }
    }
}

/// A call that is cut off by a limit is not whole, and nothing is added to it.
#[test]
fn a_call_that_is_cut_off_stays_as_it_is() {
    for (format, text, arguments) in [
        (ToolFormat::Hermes, r#"<tool_call>{"name": "f", "arguments": {"a": 1"#, r#"{"a": 1"#),
        (ToolFormat::Llama3Json, r#"{"name": "f", "parameters": {"a": ["#, r#"{"a": ["#),
        (ToolFormat::Mistral, r#"[TOOL_CALLS]f{"a": "#, r#"{"a": "#),
        (ToolFormat::Qwen3Coder, "<function=f><parameter=a>\nx", r#"{"a": "x"#),
    ] {
        let answer = parse(&tools(format), [text]);
        assert_eq!(answer.calls, [("f".into(), arguments.into(), false)], "{text}");
    }
    let cut = "[f(a=1, b=";
    assert_eq!(parse(&tools(ToolFormat::Pythonic), [cut]).text, cut);
}

/// A call that has begun keeps what the model wrote, JSON or not.
#[test]
fn broken_arguments_are_passed_on() {
    let text = r#"<tool_call>{"name": "f", "arguments": {"a": ]} rest</tool_call> Done."#;
    let answer = parse(&tools(ToolFormat::Hermes), [text]);
    assert_eq!(answer.calls, [("f".into(), r#"{"a": ]} rest"#.into(), true)]);
    assert_eq!(answer.text, " Done.");
}

#[test]
fn one_call_ends_the_answer_if_no_more_are_allowed() {
    let (settings, text, ..) = samples().swap_remove(0);
    let settings = Settings { one_call: true, ..settings };
    let mut parser = AnswerParser::new(&settings);
    let mut answer = Answer::default();
    answer.add(parser.push(text));
    assert!(parser.is_done());
    answer.add(parser.finish());
    assert_eq!(answer.calls.len(), 1);
}

#[test]
fn reasoning_is_apart_from_the_answer() {
    let think = |text: &str, begins_inside| {
        let reasoning = Some(ReasoningFormat::Think);
        parse(&Settings { reasoning, begins_inside, ..Settings::default() }, [text])
    };
    for (text, begins_inside, reasoning, said) in [
        ("<think>\nSo\nit is.\n</think>\n\nYes.\n", false, "So\nit is.", "Yes.\n"),
        ("So.\n</think>\nYes.", true, "So.", "Yes."),
        ("<think>So.</think>Yes.", true, "So.", "Yes."),
        ("\n<think></think>Yes.", false, "", "Yes."),
        ("So <think> it", true, "So <think> it", ""),
        ("Yes, <think>no</think>.", false, "", "Yes, <think>no</think>."),
        ("  Yes.", false, "", "  Yes."),
        ("<thi", false, "", "<thi"),
        ("</think>Yes.", false, "", "</think>Yes."),
    ] {
        let answer = think(text, begins_inside);
        assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), (reasoning, said), "{text}");
    }
    let (format, prompt) = (ReasoningFormat::Think, "<think>x</think><|im_start|>assistant\n");
    assert!(!format.begins_inside(prompt));
    assert!(format.begins_inside(&format!("{prompt}<think>\n")));
    assert!(ReasoningFormat::ThinkFirst.begins_inside(prompt));
    assert!(format.is_open_after("<think>so") && !format.is_open_after("<think>so</think>"));
}

#[test]
fn the_parser_knows_when_the_model_thinks() {
    let mut parser = AnswerParser::new(&thinking(ToolFormat::Hermes));
    let mut states = Vec::new();
    for piece in ["<think>", "\n", "So", "</think>", "Yes"] {
        parser.push(piece);
        states.push(parser.is_reasoning());
    }
    assert_eq!(states, [true, true, true, false, false]);
}

#[test]
fn templates_tell_the_format() {
    for (template, format) in [
        ("{\"name\": <function-name>, \"arguments\"} <tool_call>", Some(ToolFormat::Hermes)),
        ("<tool_call><function=f><parameter=p> \"arguments\"", Some(ToolFormat::Qwen3Coder)),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", Some(ToolFormat::Mistral)),
        ("<|start_header_id|> {\"name\": f, \"parameters\": d}", Some(ToolFormat::Llama3Json)),
        ("[func_name1(params_name1=params_value1)]", Some(ToolFormat::Pythonic)),
        ("<｜tool▁calls▁begin｜>", Some(ToolFormat::DeepSeekV3)),
        ("functools[", Some(ToolFormat::Phi4Mini)),
        ("<|im_start|>", None),
    ] {
        assert_eq!(ToolFormat::of_template(template), format, "{template}");
    }
    for name in ToolFormat::names() {
        assert!(name.parse::<ToolFormat>().is_ok(), "{name}");
    }
    for name in ReasoningFormat::names() {
        assert!(name.parse::<ReasoningFormat>().is_ok(), "{name}");
    }
    assert!("harmony".parse::<ToolFormat>().unwrap_err().contains("hermes"));
}
