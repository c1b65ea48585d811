//! Texts that automata accept, judged by others: the `jsonschema` and `regex` crates.
#![allow(clippy::unwrap_used)]

mod bombs;
mod schemas;

use saccade_grammar::{Automaton, GrammarError, Limits, Source, Walk, compile};
use schemas::{schemas, schemas_of_combinations, schemas_of_texts};
use serde_json::{Value, json};

fn all_schemas() -> impl Iterator<Item = schemas::Case> {
    schemas().into_iter().chain(schemas_of_texts()).chain(schemas_of_combinations())
}

/// A small generator of numbers, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

fn accepts(automaton: &Automaton, text: &str) -> bool {
    let mut walk = Walk::start();
    walk.take_all(automaton, text.as_bytes()) && walk.may_end(automaton)
}

/// A random text of the automaton, if it ends within a bound.
fn sample(automaton: &Automaton, random: &mut Random) -> Option<String> {
    const CLOSING: &[u8] = b"\"}]";
    let (mut walk, mut text) = (Walk::start(), Vec::new());
    while text.len() < 4000 {
        let next = walk.next_bytes(automaton);
        if walk.may_end(automaton) && (next.is_empty() || random.below(4) == 0) {
            return Some(String::from_utf8(text).expect("an automaton's texts are UTF-8"));
        }
        assert!(!next.is_empty(), "a dead end after {:?}", String::from_utf8_lossy(&text));
        let closing: Vec<u8> = next.iter().copied().filter(|b| CLOSING.contains(b)).collect();
        let hurry = text.len() > 200 || random.below(3) == 0;
        let from = if hurry && !closing.is_empty() { &closing } else { &next };
        let byte = from[random.below(from.len())];
        assert!(walk.take(automaton, byte));
        text.push(byte);
    }
    None
}

fn schema(schema: &Value) -> Result<Automaton, GrammarError> {
    compile(&Source::JsonSchema(schema.to_string()), &Limits::default())
}

/// Formats with texts that they have and texts that they do not.
#[test]
fn formats_have_what_their_standards_allow() {
    for (format, good, bad) in [
        (
            "date",
            &["2024-02-29", "2000-02-29", "1999-12-31"][..],
            &["1900-02-29", "2023-02-29"][..],
        ),
        ("time", &["23:59:59.123456789Z", "00:00:00-12:30"], &["24:00:00Z", "00:00:00"]),
        ("date-time", &["2024-02-29T00:00:00+01:00"], &["2024-02-30T00:00:00Z", "2024-02-29"]),
        ("duration", &["P1Y2M3DT4H5M6S", "PT5M", "P3W", "P1M"], &["P", "P1YT", "P1D2M", "P1Y2D"]),
        (
            "ipv6",
            &[
                "::",
                "::1",
                "fe80::1:2",
                "1::",
                "1:2:3:4:5:6:7:8",
                "::ffff:1.2.3.4",
                "1:2:3:4:5:6:7::",
                "::2:3:4:5:6:7:8",
            ],
            &["1:2", ":::", "1::2::3", "1:2:3:4:5:6:7:8:9"],
        ),
        ("hostname", &["example.com", "A-b.Example", "localhost"], &["-a", "a-", "a..b", "a b"]),
        ("email", &["First.Last+x@Example.co.uk"], &["a", "@b", "a@", "a..b@c"]),
        (
            "uri",
            &[
                "https://me:x@Example.com:8080/a%20b/?q=1&r=/#top",
                "urn:isbn:0451450523",
                "mailto:a@b.c",
                "file:///etc/x",
            ],
            &["a", "/a", "http://a b", "http://a/%zz"],
        ),
        ("uri-reference", &["", "/a/b", "a/b?c#d", "#x", "http://a"], &["a b", "%", "\\"]),
        ("iri", &["http://a/é"], &["é"]),
        ("iri-reference", &["é/a", "#é"], &["a b"]),
        ("uri-template", &["http://a/{b}{?c,d*}", "x"], &["{", "a}", "{a"]),
        ("json-pointer", &["", "/a~0b/~1", "//"], &["a", "/~", "/~2"]),
        ("relative-json-pointer", &["0", "1/a", "2#"], &["/a", "01", "#"]),
        ("regex", &["^[a-z]+$", "a|b", "(ab|c)*\\d"], &["(", "[", "*"]),
        ("idn-email", &["a@b.c"], &["a"]),
        ("idn-hostname", &["example.com"], &["-a"]),
    ] {
        let schema_value = json!({"type": "string", "format": format});
        let automaton = schema(&schema_value).unwrap();
        let options = jsonschema::options().should_validate_formats(true);
        let judge = options.build(&schema_value).unwrap();
        for text in good {
            assert!(judge.is_valid(&json!(text)), "a wrong case: {format} {text}");
            assert!(accepts(&automaton, &json!(text).to_string()), "{format} {text}");
        }
        for text in bad {
            assert!(!accepts(&automaton, &json!(text).to_string()), "{format} {text}");
        }
        let mut random = Random(3);
        for _ in 0..300 {
            let Some(text) = sample(&automaton, &mut random) else { continue };
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(judge.is_valid(&value), "{format} gave {text}");
        }
    }
}

/// Bounds of decimals, each with each, against integers of their units.
#[test]
fn decimals_of_every_small_range_are_exact() {
    let text = |units: i64| {
        let sign = if units < 0 { "-" } else { "" };
        format!("{sign}{}.{:02}", units.abs() / 100, units.abs() % 100)
    };
    for low in (-230..230_i64).step_by(23) {
        for high in (low..=230).step_by(31) {
            for (least, most) in [("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")]
            {
                let source = format!(
                    r#"{{"type":"number","{least}":{},"{most}":{}}}"#,
                    text(low),
                    text(high)
                );
                let exclusive = i64::from(least != "minimum");
                let inside = low + exclusive..=high - exclusive;
                let compiled = compile(&Source::JsonSchema(source.clone()), &Limits::default());
                if inside.is_empty() && low == high {
                    assert_eq!(compiled, Err(GrammarError::Unsatisfiable), "{source}");
                    continue;
                }
                let automaton = compiled.unwrap();
                for units in -300..=300 {
                    let text = text(units);
                    let minus_zero = units == 0 && text.starts_with('-');
                    let want = inside.contains(&units) && !minus_zero;
                    assert_eq!(accepts(&automaton, &text), want, "{source} {text}");
                }
            }
        }
    }
}

#[test]
fn what_a_schemas_automaton_accepts_the_schema_accepts() {
    let mut random = Random(7);
    let mut judged = 0;
    for (schema_value, _, _) in all_schemas() {
        let automaton = schema(&schema_value).unwrap_or_else(|e| panic!("{schema_value}: {e}"));
        let judge =
            jsonschema::options().should_validate_formats(true).build(&schema_value).unwrap();
        for _ in 0..60 {
            let Some(text) = sample(&automaton, &mut random) else { continue };
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|e| panic!("{schema_value} gave {text}: {e}"));
            assert!(judge.is_valid(&value), "{schema_value} gave {text}");
            judged += 1;
        }
    }
    assert!(judged > 1200, "only {judged} texts were judged");
}

#[test]
fn values_in_the_schemas_order_are_accepted_and_others_are_not() {
    for (schema_value, good, bad) in all_schemas() {
        let automaton = schema(&schema_value).unwrap();
        let judge = jsonschema::validator_for(&schema_value).unwrap();
        for value in good {
            assert!(judge.is_valid(&value), "a wrong case: {schema_value} {value}");
            let compact = value.to_string();
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let spaced = compact.replace(':', ": ").replace(',', ", ");
            // Listed values are written in one way.
            let listed = schema_value.get("enum").is_some();
            for text in [&compact, &pretty].into_iter().take(if listed { 1 } else { 2 }) {
                assert!(accepts(&automaton, text), "{schema_value} must accept {text}");
            }
            let in_text = listed || compact.contains("\\\"") || compact.contains("T2");
            assert!(in_text || accepts(&automaton, &spaced), "{schema_value} must accept {spaced}");
        }
        for value in bad {
            let text = value.to_string();
            assert!(!accepts(&automaton, &text), "{schema_value} must not accept {text}");
        }
    }
}

#[test]
fn numbers_of_every_small_range_are_exact() {
    for low in -12..=12_i64 {
        for high in low..=12 {
            let automaton =
                schema(&json!({"type": "integer", "minimum": low, "maximum": high})).unwrap();
            for value in -120..=120_i64 {
                let inside = (low..=high).contains(&value);
                assert_eq!(
                    accepts(&automaton, &value.to_string()),
                    inside,
                    "{value} {low}..{high}"
                );
            }
        }
    }
    for (low, high) in [(7, 1000), (98, 10_203), (100, 999), (1999, 2001)] {
        let automaton =
            schema(&json!({"type": "integer", "minimum": low, "maximum": high})).unwrap();
        for value in 0..11_000_i64 {
            let inside = (low..=high).contains(&value);
            assert_eq!(accepts(&automaton, &value.to_string()), inside, "{value} {low}..{high}");
        }
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for (schema_value, name) in [
        (json!({"type": "integer", "not": {"multipleOf": 3}}), "the opposite of this schema"),
        (
            json!({"type": "object", "propertyNames": {"not": {"const": "a"}}}),
            "`not` in `propertyN",
        ),
        (json!({"type": "array", "uniqueItems": true}), "`uniqueItems`"),
        (json!({"type": "number", "multipleOf": 0.123_456_789}), "`multipleOf` of this many"),
        (json!({"type": "array", "contains": {"type": "null"}}), "`contains`"),
        (json!({"enum": [1, "a"], "$ref": "#a"}), "`$ref` to an anchor"),
        (json!({"enum": ["a"], "format": "date"}), "`format` beside `enum`"),
        (
            json!({"properties": {"a": {"$id": "b", "$ref": "#/c"}}, "c": true}),
            "`$ref` beneath an `$id`",
        ),
        (json!({"$ref": "other.json"}), "`$ref` to another document"),
        (json!({"type": "string", "pattern": "(?=a)"}), "`(?`"),
        (json!({"type": "number", "minimum": 9_007_199_254_740_993_i64}), "a bound beyond"),
        (json!({"type": "number", "exclusiveMinimum": 10.000_000_000_000_01}), "this many digits"),
        (json!({"type": "number", "minimum": 1e-20}), "`minimum` of this size"),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]}),
            "`prefixItems` in a draft",
        ),
        (json!({"type": "object", "properties": {"a": {"contains": {}}}}), "(at #/properties/a)"),
        (
            json!({"allOf": [{"items": {"type": "integer"}},
                {"prefixItems": [{"type": "string"}]}]}),
            "`items` beside",
        ),
        (
            json!({"allOf": [{"properties": {"a": true}, "additionalProperties": false},
                          {"patternProperties": {"b": true}}]}),
            "`additionalProperties` beside",
        ),
    ] {
        let error = schema(&schema_value).unwrap_err().to_string();
        assert!(error.contains(name), "{schema_value}: {error}");
    }
    assert_eq!(schema(&json!(false)), Err(GrammarError::Unsatisfiable));
    let endless = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    assert_eq!(schema(&endless), Err(GrammarError::Unsatisfiable));
}

#[test]
fn bombs_are_refused_by_a_bound() {
    for (name, bomb) in bombs::all() {
        let error = compile(&bomb, &Limits::default()).err();
        let error = error.unwrap_or_else(|| panic!("{name} is compiled"));
        assert!(!matches!(error, GrammarError::Empty), "{name}: {error}");
    }
}

#[test]
fn regular_expressions_match_as_elsewhere() {
    let mut random = Random(11);
    for pattern in [
        "abc",
        "a|bc|",
        "[a-c]{2,4}x?",
        r"\d{3}-\d{4}",
        r"(foo|ba[rz])+",
        r"[^a-z\n]{1,3}",
        r"\w+@\w+\.(com|org)",
        "é+[à-ü]?",
        r"x(y(z)*)*",
        r".{0,5}",
        r"[\d.]+",
        r"\s\S",
        r"^anchored$",
        r"\u00e9\x41",
    ] {
        let automaton = compile(&Source::Regex(pattern.into()), &Limits::default()).unwrap();
        // There letters, digits and spaces are all of Unicode's, here they are ECMA 262's.
        let space = r"\t\n\x0B\x0C\r \u{feff}\p{Zs}\u{2028}\u{2029}";
        let ascii = pattern
            .replace(r"\w", "[0-9A-Za-z_]")
            .replace(r"\d", "[0-9]")
            .replace(r"\s", &format!("[{space}]"))
            .replace(r"\S", &format!("[^{space}]"));
        let judge = regex::Regex::new(&format!("^(?:{ascii})$")).unwrap();
        for _ in 0..200 {
            let Some(text) = sample(&automaton, &mut random) else { continue };
            assert!(judge.is_match(&text), "{pattern} gave {text:?}");
            // A text that differs in one place is accepted by both or by none.
            let mut chars: Vec<char> = text.chars().collect();
            if !chars.is_empty() {
                let at = random.below(chars.len());
                chars[at] = ['a', 'x', '1', 'é', '-'][random.below(5)];
            }
            let other: String = chars.into_iter().collect();
            assert_eq!(accepts(&automaton, &other), judge.is_match(&other), "{pattern} {other:?}");
        }
    }
}

#[test]
fn choices_are_exactly_the_given_texts() {
    let texts: Vec<String> = ["yes", "no", "yesterday", "né"].map(String::from).into();
    let automaton = compile(&Source::Choice(texts.clone()), &Limits::default()).unwrap();
    for text in &texts {
        assert!(accepts(&automaton, text));
    }
    for text in ["", "y", "yest", "noo", "n"] {
        assert!(!accepts(&automaton, text), "{text}");
    }
    let empty = compile(&Source::Choice(vec![String::new()]), &Limits::default());
    assert_eq!(empty, Err(GrammarError::Empty));
}

#[test]
fn objects_nest_as_deep_as_the_stack_and_then_end() {
    let automaton = compile(&Source::JsonObject, &Limits::default()).unwrap();
    for depth in [1, 10, 28] {
        let text = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        assert!(accepts(&automaton, &text), "{depth}");
    }
    let text = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
    assert!(!accepts(&automaton, &text));
    for text in ["[]", "1", "", "{", "{}}", "{\"a\"}", "{\"a\":1,}", "{,}"] {
        assert!(!accepts(&automaton, text), "{text}");
    }
}

#[test]
fn a_grammar_compiles_to_the_same_words_each_time() {
    for (schema_value, ..) in all_schemas() {
        assert_eq!(schema(&schema_value), schema(&schema_value));
    }
}

/// A model that likes white space best still gets on with its answer.
#[test]
fn white_space_ends() {
    let automaton = schema(&json!({
        "type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}}},
        "required": ["a"], "additionalProperties": false,
    }))
    .unwrap();
    for blank in [" ", "\t"] {
        let indented = |n: usize| format!("{{\n{}\"a\": []}}", blank.repeat(n));
        assert!(accepts(&automaton, &indented(40)), "40 of {blank:?}");
        assert!(!accepts(&automaton, &indented(41)), "41 of {blank:?}");
    }
    assert!(!accepts(&automaton, "{\n\n\"a\": []}"));
    let (mut walk, mut text) = (Walk::start(), Vec::new());
    while !walk.may_end(&automaton) {
        let next = walk.next_bytes(&automaton);
        let blank = next.iter().rev().find(|byte| b" \t\n".contains(byte));
        let byte = *blank.unwrap_or(&next[0]);
        assert!(walk.take(&automaton, byte));
        text.push(byte);
        assert!(text.len() < 500, "{:?}", String::from_utf8_lossy(&text));
    }
}

/// Plain states are checked where random walks come by, against random characters.
#[test]
fn from_plain_places_plain_text_goes_on() {
    const CHARS: &[&str] = &[
        " ",
        "!",
        "#",
        "a",
        "z",
        "[",
        "]",
        "~",
        "é",
        "\u{7ff}",
        "\u{800}",
        "中",
        "\u{d7ff}",
        "\u{e000}",
        "\u{ffff}",
        "\u{10000}",
        "\u{10ffff}",
    ];
    let mut random = Random(5);
    let (mut plain, mut ends, mut others) = (0, 0, 0);
    let longer = [
        json!({"type": "string", "minLength": 500, "maxLength": 5000}),
        json!({"type": "array", "items": {"type": "string", "maxLength": 300}}),
        json!({"type": "object", "properties": {"abc": {"type": "string", "maxLength": 99}}}),
        json!({"type": "array", "items": {"type": "string", "minLength": 25, "maxLength": 25}}),
        json!(true),
    ];
    for schema_value in longer.into_iter().chain(all_schemas().map(|case| case.0)) {
        let automaton = schema(&schema_value).unwrap();
        for _ in 0..40 {
            let mut walk = Walk::start();
            for _ in 0..300 {
                let known = walk.plain_chars(&automaton);
                let mut ahead = walk.clone();
                let mut go_on = || {
                    let next = CHARS[random.below(CHARS.len())];
                    ahead.take_all(&automaton, next.as_bytes())
                };
                for i in 0..known {
                    assert!(go_on(), "{schema_value}: {walk:?} takes {i} of {known}");
                }
                if known > 0 && known < 32 {
                    ends += 1;
                    assert!(!go_on(), "{schema_value}: {walk:?} takes more than {known}");
                }
                *(if known == 32 { &mut plain } else { &mut others }) += 1;
                let next = walk.next_bytes(&automaton);
                // Quotes are rare in what a model writes.
                let letters: Vec<u8> =
                    next.iter().copied().filter(u8::is_ascii_lowercase).collect();
                let from =
                    if letters.len() > 20 && random.below(12) > 0 { &letters } else { &next };
                if from.is_empty() || !walk.take(&automaton, from[random.below(from.len())]) {
                    break;
                }
            }
        }
    }
    let enough = plain > 20_000 && others > 20_000 && ends > 200;
    assert!(enough, "{plain} plain, {others} others, {ends} of which end");
}
