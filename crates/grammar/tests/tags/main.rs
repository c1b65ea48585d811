//! Structural tags: given ones, and random ones that a recogniser written out by hand judges.
#![allow(clippy::unwrap_used)]

mod judge;

use judge::{ALPHABET, Format, Random};
use saccade_grammar::{Automaton, GrammarError, Limits, Source, Walk, compile};
use serde_json::{Value, json};

fn tag_of(document: &Value) -> Result<Automaton, GrammarError> {
    compile(&Source::StructuralTag(document.to_string()), &Limits::default())
}

fn format_of(format: &Value) -> Result<Automaton, GrammarError> {
    tag_of(&json!({"type": "structural_tag", "format": format}))
}

fn accepts(automaton: &Automaton, text: &str) -> bool {
    let mut walk = Walk::start();
    walk.take_all(automaton, text.as_bytes()) && walk.may_end(automaton)
}

/// A random text of the automaton, if it ends within a bound.
fn sample(automaton: &Automaton, random: &mut Random) -> Option<String> {
    let (mut walk, mut text) = (Walk::start(), Vec::new());
    while text.len() < 40 {
        let next = walk.next_bytes(automaton);
        if walk.may_end(automaton) && (next.is_empty() || random.below(6) == 0) {
            return Some(String::from_utf8(text).expect("an automaton's texts are UTF-8"));
        }
        assert!(!next.is_empty(), "a dead end after {:?}", String::from_utf8_lossy(&text));
        // Free text would hardly ever come by a marker.
        let telling: Vec<u8> =
            next.iter().copied().filter(|byte| b"<ab>/x()[]".contains(byte)).collect();
        let from = if random.below(5) > 0 && !telling.is_empty() { &telling } else { &next };
        let byte = random.one(from);
        assert!(walk.take(automaton, byte));
        text.push(byte);
    }
    None
}

/// A text that differs in a place.
fn changed(text: &str, random: &mut Random) -> String {
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let at = random.one(&places);
    let (before, behind) = text.split_at(at);
    let mut rest = behind.chars();
    if random.below(2) == 0 {
        rest.next();
    }
    let new = if random.below(3) == 0 { "" } else { random.one(ALPHABET) };
    format!("{before}{new}{}", rest.as_str())
}

#[test]
fn random_tags_have_the_texts_that_their_recogniser_has() {
    let mut random = Random(20);
    let (mut compiled, mut accepted, mut refused) = (0, 0, 0);
    for _ in 0..1500 {
        let format = Format::random(&mut random, 3);
        let document = json!({"type": "structural_tag", "format": format.json()});
        let source = Source::StructuralTag(document.to_string());
        // Some need copies of a schema without end: they are refused soon.
        let limits = Limits { fuel: 300_000, ..Limits::default() };
        let automaton = match compile(&source, &limits) {
            Ok(automaton) => automaton,
            Err(GrammarError::Unsatisfiable | GrammarError::Empty) => continue,
            Err(error) => {
                let known = [
                    "must begin with one of `triggers`",
                    "must not be parts of each other",
                    "only the last element of a `sequence`",
                    "must not end with free text",
                    "steps of its compiler",
                    "cannot be told from what else may be there by its next byte",
                    "may, within itself, end where it may also go on",
                ];
                let error = error.to_string();
                assert!(known.iter().any(|known| error.contains(known)), "{error}");
                continue;
            }
        };
        compiled += 1;
        let mut agree = |text: &str| {
            let (is, must) = (accepts(&automaton, text), format.has(text));
            // Between JSON's tokens there is less white space than JSON allows.
            let may_lack = text.contains(|c: char| c.is_ascii_whitespace());
            assert!(is == must || may_lack && must, "{is} {text:?} of {}", format.json());
            *(if is { &mut accepted } else { &mut refused }) += 1;
        };
        for _ in 0..8 {
            if let Some(text) = sample(&automaton, &mut random) {
                assert!(format.has(&text), "{text:?} of {}", format.json());
                agree(&text);
                for _ in 0..4 {
                    agree(&changed(&text, &mut random));
                }
            }
            let pieces = (0..random.below(7)).map(|_| random.one(ALPHABET));
            agree(&pieces.collect::<String>());
        }
    }
    eprintln!("{compiled} {accepted} {refused}");
    assert!(compiled > 300 && accepted > 3000 && refused > 3000);
}

/// A function as both shapes write it.
fn functions() -> [Value; 2] {
    let schema = |kind: &str| {
        json!({"type": "object", "properties": {"v": {"type": kind}},
        "required": ["v"], "additionalProperties": false})
    };
    let tag = |name: &str, kind: &str| {
        json!({"begin": format!("<f={name}>"), "end": "</f>",
        "content": {"type": "json_schema", "json_schema": schema(kind)}})
    };
    let older = json!({"type": "structural_tag", "triggers": ["<f="], "structures": [
        {"begin": "<f=a>", "schema": schema("boolean"), "end": "</f>"},
        {"begin": "<f=b>", "schema": schema("null").to_string(), "end": "</f>"}]});
    let newer = json!({"type": "structural_tag", "format": {"type": "triggered_tags",
        "triggers": ["<f="], "tags": [tag("a", "boolean"), tag("b", "null")]}});
    [older, newer]
}

#[test]
fn text_is_free_until_a_trigger_and_then_a_tag_of_it_follows() {
    for document in functions() {
        let automaton = tag_of(&document).unwrap();
        for text in [
            "",
            "any text, \u{e9}\u{1F600}\0 </f> <f> <f",
            "<f=a>{\"v\": true}</f>",
            "So:\n<<f=b>{\n  \"v\": null\n}</f> and <f=a>{\"v\":false}</f>.",
            "<f=a>{\"v\":false}</f><f=a>{\"v\":false}</f>",
        ] {
            assert!(accepts(&automaton, text), "{text}");
        }
        for text in [
            "<f=",
            "x <f=c>",
            "<f=a>",
            "<f=a> {\"v\":true}</f>",
            "<f=b>{\"v\":true}</f>",
            "<f=a>{\"v\":true}</f",
            "<f=a>{\"v\":true}",
            "<f=a>{\"v\":true}</f><f=",
        ] {
            assert!(!accepts(&automaton, text), "{text}");
        }
    }
    let [older, newer] = functions().map(|document| tag_of(&document).unwrap());
    assert_eq!(older, newer);
}

#[test]
fn flags_of_triggered_tags_say_where_text_may_be() {
    let [_, document] = functions();
    let (one, other) = ("<f=a>{\"v\":true}</f>", "<f=b>{\"v\":null}</f>");
    for (first, once, good, bad) in [
        (false, true, vec!["x", "", one, "x<f=b>{\"v\":null}</f>"], vec![format!("{one}x")]),
        (true, false, vec![one, "<f=b>{\"v\":null}</f> x"], vec![String::new(), format!("x{one}")]),
        (true, true, vec![one, other], vec!["x".into(), format!("{one}{other}"), "".into()]),
    ] {
        let mut document = document.clone();
        document["format"]["at_least_one"] = json!(first);
        document["format"]["stop_after_first"] = json!(once);
        let automaton = tag_of(&document).unwrap();
        good.iter().for_each(|text| assert!(accepts(&automaton, text), "{first} {once} {text}"));
        bad.iter().for_each(|text| assert!(!accepts(&automaton, text), "{first} {once} {text}"));
    }
}

/// Thoughts first, then text with calls, as models that reason write them.
#[test]
fn free_text_within_a_tag_is_over_where_the_tags_end_comes() {
    let thought = json!({"type": "tag", "begin": "<think>", "content": {"type": "any_text",
        "excludes": ["</think>", "<f="]}, "end": ["</think>", "<|done|>"]});
    let [_, calls] = functions();
    let elements = json!([thought, calls["format"]]);
    let automaton = format_of(&json!({"type": "sequence", "elements": elements})).unwrap();
    for text in [
        "<think></think>",
        "<think>a < b </thin</think>Yes.",
        "<think>a<|done|></think> <f=a>{\"v\":true}</f>",
    ] {
        assert!(accepts(&automaton, text), "{text}");
    }
    for text in
        ["", "<think>", "Yes.", "<think>a<f=a>{\"v\":true}</f></think>", "<think>a</think><f="]
    {
        assert!(!accepts(&automaton, text), "{text}");
    }
}

#[test]
fn markers_may_be_beyond_ascii() {
    let automaton = format_of(&json!({"type": "triggered_tags", "triggers": ["<｜call▁"],
        "tags": [{"begin": "<｜call▁begin｜>", "content": {"type": "regex", "pattern": "[0-9]+"},
            "end": "<｜call▁end｜>"}]}))
    .unwrap();
    assert!(accepts(&automaton, "｜<｜<｜call <｜call▁begin｜>12<｜call▁end｜> ▁中"));
    assert!(!accepts(&automaton, "<｜call▁begin｜>x"));
    assert!(!accepts(&automaton, "<｜call▁"));
    // Half a character is no text.
    let mut walk = Walk::start();
    assert!(walk.take_all(&automaton, &"<｜call▁".as_bytes()[..3]) && !walk.may_end(&automaton));
}

/// A rule of a grammar may go on with what may come behind the tag: both are tried.
#[test]
fn a_grammar_in_a_tag_gives_way_to_its_end() {
    let tag = |grammar: &str, end: &str| {
        format_of(&json!({"type": "tag", "begin": "<", "end": end,
            "content": {"type": "grammar", "grammar": grammar}}))
    };
    let optional = tag("root ::= [a-z]* num?\nnum ::= [0-9]+", "00>").unwrap();
    for (text, is) in
        [("<ab00>", true), ("<00>", true), ("<a1000>", true), ("<a0>", false), ("<00", false)]
    {
        assert_eq!(accepts(&optional, text), is, "{text}");
    }
    let always = tag("root ::= \"x\" num\nnum ::= [0-9]+", "00>").unwrap();
    for (text, is) in [("<x100>", true), ("<x0000>", true), ("<x00>", false), ("<x10>", false)] {
        assert_eq!(accepts(&always, text), is, "{text}");
    }
    // Two grammars do not know each other's rules, and one of them is in Lark's notation.
    let two = json!({"type": "or", "elements": [
        {"type": "grammar", "grammar": "root ::= \"(\" root \")\" | item\nitem ::= \"x\""},
        {"type": "grammar", "grammar": "start: item+\nitem: \"[\" item? \"]\""}]});
    let automaton = format_of(&two).unwrap();
    for (text, is) in [("((x))", true), ("[[]][]", true), ("([])", false), ("[x]", false)] {
        assert_eq!(accepts(&automaton, text), is, "{text}");
    }
}

#[test]
fn behind_a_text_that_is_looked_for_its_format_follows() {
    let rules = json!([["@", {"type": "regex", "pattern": "[a-z]+;"}],
        ["#1", {"type": "json_schema", "json_schema": {"type": "boolean"}}],
        ["@", {"type": "const_string", "value": "@"}]]);
    let mut format = json!({"type": "dispatch", "rules": rules, "excludes": ["!"]});
    let many = format_of(&format).unwrap();
    format["loop"] = json!(false);
    let once = format_of(&format).unwrap();
    for (text, of_many, of_once) in [
        ("# 1", true, true),
        ("a @b;", true, true),
        ("##1true", true, true),
        ("@@ #1false@a;", true, false),
        ("@A", false, false),
        ("#1", false, false),
        ("a!", false, false),
    ] {
        assert_eq!(accepts(&many, text), of_many, "{text}");
        assert_eq!(accepts(&once, text), of_once, "{text}");
    }
}

/// A number takes the digits that come, and still there is a way to the end.
#[test]
fn a_number_in_a_tag_gives_way_to_digits_of_its_end() {
    let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [
        {"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/n"}}]}}});
    let automaton = format_of(&json!({"type": "tag", "begin": "<", "end": "5>",
        "content": {"type": "json_schema", "json_schema": schema}}))
    .unwrap();
    let mut random = Random(3);
    let mut seen = 0;
    for _ in 0..300 {
        let Some(text) = sample(&automaton, &mut random) else { continue };
        let json = text.strip_prefix('<').unwrap().strip_suffix("5>").unwrap();
        let value: Value = serde_json::from_str(json).unwrap();
        assert!(value.is_number() || value.is_array(), "{text}");
        seen += 1;
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn what_cannot_be_kept_is_refused_with_its_place() {
    let any = json!({"type": "any_text"});
    let with = |name: &str, value: Value| {
        let mut format = json!({"type": "triggered_tags", "triggers": ["<a"], "tags": [
            {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}]});
        format[name] = value;
        format
    };
    let tag = |content: Value, end: Value| json!({"type": "tag", "begin": "<a>", "content": content, "end": end});
    for (format, message) in [
        (json!(1), "must be an object (at #/format)"),
        (json!({}), "`type` is missing (at #/format)"),
        (json!({"type": "token", "token": 1}), "the format `token` is not supported (at #/format)"),
        (json!({"type": "token_dispatch"}), "the format `token_dispatch` is not supported"),
        (
            json!({"type": "dispatch", "rules": [["", any]]}),
            "`rules` must be pairs of a text, not empty, and a format (at #/format)",
        ),
        (
            json!({"type": "dispatch", "rules": [["x", any]]}),
            "must not end with free text (at #/format/rules/0/1)",
        ),
        (json!({"type": "qwen_xml_parameter"}), "the format `qwen_xml_parameter` is not"),
        (json!({"type": "any_text", "max_tokens": 3}), "`max_tokens` is not supported (at #/f"),
        (json!({"type": "any_text", "excludes": [""]}), "`excludes` must be a list of strings"),
        (
            json!({"type": "json_schema", "json_schema": {}, "style": "glm_xml"}),
            "`style` but json is not supported (at #/format)",
        ),
        (json!({"type": "const_string", "value": 1}), "`value` must be a string (at #/format)"),
        (json!({"type": "or", "elements": []}), "`elements` must be a list, not empty"),
        (
            json!({"type": "sequence", "elements": [any, {"type": "const_string", "value": "x"}]}),
            "only the last element of a `sequence` may end with free text (at #/format/elements/0)",
        ),
        (json!({"type": "star", "content": any}), "must not end with free text (at #/format/c"),
        (json!({"type": "repeat", "content": any, "min": 0}), "`max` is missing"),
        (
            json!({"type": "repeat", "content": any, "min": 3, "max": 2}),
            "`max` must be `min` at least",
        ),
        (tag(any.clone(), json!("")), "`end` must not be empty behind free text"),
        (tag(any.clone(), json!([])), "`end` must be a string"),
        (tag(any.clone(), json!({"type": "token", "token": 1})), "`end` must be a string"),
        (
            tag(json!({"type": "json_schema", "json_schema": {"uniqueItems": true}}), json!("x")),
            "`uniqueItems` is not supported (at #/format/content/json_schema)",
        ),
        (
            tag(json!({"type": "regex", "pattern": "("}), json!("x")),
            "unclosed group (at #/format/content/pattern)",
        ),
        (
            tag(json!({"type": "grammar", "grammar": "root ::= x"}), json!("x")),
            "(at #/format/content/grammar, line 1",
        ),
        (with("triggers", json!([])), "`triggers` must be a list, not empty (at #/format)"),
        (with("triggers", json!(["<b"])), "must begin with one of `triggers`, got `<a>`"),
        (with("triggers", json!(["<a", "<a>"])), "parts of each other: `<a` is in `<a>`"),
        (with("excludes", json!(["a"])), "parts of each other: `a` is in `<a`"),
        (with("at_least_one", json!(1)), "`at_least_one` must be a boolean (at #/format)"),
        (with("loop", json!(true)), "`loop` is not supported (at #/format)"),
        (with("tags", json!([{"type": "or"}])), "`type` must be tag (at #/format/tags/0)"),
    ] {
        let error = format_of(&format).unwrap_err().to_string();
        assert!(error.contains(message), "{format}: {error}");
    }
    for (document, message) in [
        (json!([]), "must be an object"),
        (json!({"type": "json_schema"}), "`type` must be structural_tag (at #)"),
        (json!({"type": "structural_tag"}), "`format` is missing (at #)"),
        (json!({"structures": []}), "`structures` must be a list, not empty"),
        (
            json!({"triggers": ["<"], "structures": [{"begin": "<", "end": ">"}]}),
            "`schema` is missing (at #/structures/0)",
        ),
        (
            json!({"triggers": ["<"], "structures": [{"begin": "<", "end": ">",
                "schema": {"properties": {"a": {"contains": {}}}}}]}),
            "(at #/structures/0/schema/properties/a)",
        ),
    ] {
        let error = tag_of(&document).unwrap_err().to_string();
        assert!(error.contains(message), "{document}: {error}");
    }
    let error = compile(&Source::StructuralTag("{".into()), &Limits::default()).unwrap_err();
    assert!(error.to_string().starts_with("the structural tag is not JSON"), "{error}");
}

#[test]
fn what_is_too_large_is_refused_by_a_bound() {
    let tag =
        |begin: String, content: Value| json!({"begin": begin, "content": content, "end": "z"});
    let text = json!({"type": "const_string", "value": "x"});
    let triggered = |triggers: Value, tags: Vec<Value>| {
        json!({"type": "triggered_tags",
        "triggers": triggers, "tags": tags})
    };
    let many = |n: usize| (0..n).map(|i| format!("<{i}>")).collect::<Vec<_>>();
    let tags = |n: usize| many(n).into_iter().map(|begin| tag(begin, text.clone())).collect();
    let nested = |n: usize| {
        (0..n).fold(text.clone(), |inner, _| json!({"type": "optional", "content": inner}))
    };
    let object = json!({"type": "json_schema", "json_schema": {"type": "object"}});
    let objects = many(512).into_iter().map(|begin| tag(begin, object.clone())).collect();
    for largest in [
        triggered(json!(["<"]), tags(512)),
        triggered(json!(many(512)), tags(1)),
        // What they have in common is made once.
        triggered(json!(["<"]), objects),
    ] {
        let compiled = format_of(&largest);
        assert!(compiled.is_ok(), "{:?}", compiled.err());
    }
    assert!(format_of(&nested(31)).is_ok());
    let repeated = (0..12).fold(
        text.clone(),
        |inner, _| json!({"type": "repeat", "content": inner, "min": 9, "max": 99}),
    );
    let long = (0..64).map(|i| format!("{i}{}", "ab".repeat(1500))).collect::<Vec<_>>();
    for (format, bound) in [
        (triggered(json!(["<"]), tags(513)), "the number of its tags must be at most 512"),
        (triggered(json!(many(513)), tags(1)), "the number of its `triggers` must be at most 512"),
        (json!({"type": "any_text", "excludes": many(513)}), "its `excludes` must be at most 512"),
        (
            json!({"type": "tag", "begin": "", "content": text, "end": many(513)}),
            "the number of texts in its `end` must be at most 512",
        ),
        (nested(32), "the depth of its formats must be at most 32"),
        (json!({"type": "const_string", "value": "x".repeat(300_000)}), "text in bytes must be at"),
        (repeated, "steps of its compiler must be at most"),
        (json!({"type": "any_text", "excludes": long}), "steps of its compiler must be at most"),
    ] {
        let error = format_of(&format).unwrap_err().to_string();
        assert!(error.contains(bound), "{bound}: {error}");
    }
}

/// The markers of a tag whose content no text can have never come.
#[test]
fn what_cannot_be_finished_is_not_begun() {
    let tag = |schema: Value| {
        format_of(&json!({"type": "triggered_tags", "triggers": ["<a"], "tags": [{"begin": "<a>",
            "content": {"type": "json_schema", "json_schema": schema}, "end": "</a>"}]}))
    };
    let automaton = tag(json!(false)).unwrap();
    assert!(accepts(&automaton, "a <") && !Walk::start().take_all(&automaton, b"a <a"));
    let only = format_of(&json!({"type": "tag", "begin": "<a>", "end": "</a>",
        "content": {"type": "json_schema", "json_schema": false}}));
    assert_eq!(only, Err(GrammarError::Unsatisfiable));
}
