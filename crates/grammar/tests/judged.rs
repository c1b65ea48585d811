//! Texts that automata accept, judged by others: the `jsonschema` and `regex` crates.
#![allow(clippy::unwrap_used)]

use saccade_grammar::{Automaton, GrammarError, Limits, Source, Tagged, Walk, compile};
use serde_json::{Value, json};

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

/// Schemas with values that they accept and, where there is one, a value that they do not.
fn schemas() -> Vec<(Value, Vec<Value>, Vec<Value>)> {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "left": {"$ref": "#/$defs/node"},
                           "right": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["name"], "additionalProperties": false}}
    });
    vec![
        (
            json!(true),
            vec![json!(null), json!({"a": [1, "x", {"b": -0.5}]}), json!([[[]]])],
            vec![],
        ),
        (json!({"type": "string"}), vec![json!(""), json!("aé\u{1f600}\n\"\\")], vec![json!(1)]),
        (
            json!({"type": ["integer", "null"]}),
            vec![json!(0), json!(-17), json!(null)],
            vec![json!(1.5), json!("1")],
        ),
        (json!({"type": "number"}), vec![json!(0), json!(-1.25), json!(1e3)], vec![json!(null)]),
        (json!({"type": "boolean"}), vec![json!(true), json!(false)], vec![json!(0)]),
        (
            json!({"enum": ["a", "ab", 1, null, {"k": [1]}]}),
            vec![json!("a"), json!("ab"), json!(1), json!(null), json!({"k": [1]})],
            vec![json!("b"), json!("abc"), json!({})],
        ),
        (json!({"const": "x\"y"}), vec![json!("x\"y")], vec![json!("x")]),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"},
                "b": {"type": "string"},
                "c": {"type": "array", "items": {"type": "boolean"}}}, "required": ["b"],
                "additionalProperties": false}),
            vec![
                json!({"b": ""}),
                json!({"a": 1, "b": "x", "c": [true, false]}),
                json!({"b": "", "c": []}),
            ],
            vec![json!({}), json!({"a": 1}), json!({"b": 1}), json!({"b": "", "d": 1})],
        ),
        (
            json!({"type": "object", "properties": {"ab": {"type": "integer"},
                "é": {"type": "null"}}}),
            vec![json!({}), json!({"ab": 1}), json!({"a": "x", "abc": [], "z": {"ab": "y"}})],
            vec![json!({"ab": "x"}), json!({"é": 1})],
        ),
        (
            json!({"type": "object", "required": ["k"],
                "additionalProperties": {"type": "integer"}}),
            vec![json!({"k": 1}), json!({"k": 1, "l": 2})],
            vec![json!({}), json!({"k": "x"})],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4}),
            vec![json!([1, 2]), json!([1, 2, 3, 4])],
            vec![json!([1]), json!([1, 2, 3, 4, 5])],
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "items": false, "minItems": 2}),
            vec![json!(["x", 1])],
            vec![json!(["x"]), json!([1, "x"]), json!(["x", 1, 2])],
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 4}),
            vec![json!("ab"), json!("éèàù"), json!("\"\"")],
            vec![json!("a"), json!("abcde")],
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+-\\d{2,3}$"}),
            vec![json!("ab-12"), json!("z-999")],
            vec![json!("ab"), json!("a-1234"), json!("A-12")],
        ),
        (
            json!({"type": "string", "pattern": "b\"+"}),
            vec![json!("ab\"c"), json!("b\"")],
            vec![json!("a\""), json!("b")],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            vec![json!("2024-02-28T23:59:59Z")],
            vec![json!("2024-02-31T00:00:00Z")],
        ),
        (
            json!({"type": "string", "format": "uuid"}),
            vec![json!("123e4567-e89b-12d3-a456-426614174000")],
            vec![json!("123")],
        ),
        (
            json!({"type": "integer", "minimum": -12, "maximum": 345}),
            vec![json!(-12), json!(-1), json!(0), json!(9), json!(10), json!(99), json!(345)],
            vec![json!(-13), json!(346), json!(1000)],
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": 99, "maximum": 1234}),
            vec![json!(100), json!(999), json!(1234)],
            vec![json!(99), json!(1235)],
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            vec![json!(0), json!(123456789)],
            vec![json!(-1)],
        ),
        (
            json!({"type": "number", "minimum": -1, "exclusiveMaximum": 10}),
            vec![json!(-1), json!(-0.5), json!(0), json!(9.75)],
            vec![json!(10), json!(-1.5), json!(11)],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
            vec![json!(0.5), json!(1)],
            vec![json!(0), json!(1.5), json!(-0.25)],
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"const": "x"}, {"type": "integer"}]}),
            vec![json!("x"), json!("y"), json!(3)],
            vec![json!(null), json!(1.5)],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"},
                "b": {"type": "integer"}},
                "additionalProperties": false, "anyOf": [{"required": ["a"]},
                    {"required": ["b"]}]}),
            vec![json!({"a": 1}), json!({"b": 1}), json!({"a": 1, "b": 2})],
            vec![json!({})],
        ),
        (
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}},
                {"properties": {"b": {"type": "string"}}, "required": ["a"]}]}),
            vec![json!({"a": 1}), json!({"a": 1, "b": "x"})],
            vec![json!({}), json!({"a": 1, "b": 2})],
        ),
        (
            json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
             "required": ["kind", "x"]},
            {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}),
            vec![json!({"kind": "a", "x": 1}), json!({"kind": "b"})],
            vec![json!({"kind": "a"})],
        ),
        (
            tree,
            vec![json!({"name": "r"}), json!({"name": "r", "left": {"name": "l"}, "right": null})],
            vec![json!({"left": {"name": "l"}}), json!({"name": "r", "left": {}})],
        ),
        (
            json!({"$defs": {"id": {"type": "integer"}}, "type": "object", "properties": {
            "ids": {"type": "array", "items": {"$ref": "#/$defs/id", "minimum": 3}}}}),
            vec![json!({"ids": [3, 4]})],
            vec![json!({"ids": [2]}), json!({"ids": ["x"]})],
        ),
    ]
}

/// Schemas of keywords that need texts told apart, in the same form.
fn schemas_of_texts() -> Vec<(Value, Vec<Value>, Vec<Value>)> {
    vec![
        (
            json!({"type": "string", "pattern": "^[a-zé]+$", "minLength": 2, "maxLength": 3}),
            vec![json!("ab"), json!("éé"), json!("abé")],
            vec![json!("a"), json!("abcd"), json!("AB"), json!("")],
        ),
        (
            json!({"type": "string", "pattern": "x", "maxLength": 4}),
            vec![json!("x"), json!("x\n\"\\"), json!("é\u{1f600}xx")],
            vec![json!("abcdx"), json!("abc"), json!("")],
        ),
        (
            json!({"type": "string", "pattern": "^(ab|cde)$", "minLength": 1, "maxLength": 9000}),
            vec![json!("ab"), json!("cde")],
            vec![json!("abc")],
        ),
        (
            json!({"type": "string", "format": "hostname", "pattern": "^[^.]*\\.ORG$",
                "maxLength": 9}),
            vec![json!("ab-c.ORG")],
            vec![json!("ab-c.org"), json!("abcdefg.ORG"), json!("a.b.ORG")],
        ),
        (
            json!({"type": "string", "pattern": "(^a$)|b(^c|d$)|e"}),
            vec![json!("a"), json!("xbd"), json!("xex")],
            vec![json!("ab"), json!("bc"), json!("bdx")],
        ),
        (
            json!({"type": "string", "pattern": "^(|a$|$b|(^c|d)+)$"}),
            vec![json!(""), json!("a"), json!("c"), json!("cd"), json!("dd")],
            vec![json!("b"), json!("dc"), json!("ab")],
        ),
        (json!({"type": "string", "format": "color"}), vec![json!("any\n")], vec![json!(1)]),
        (
            json!({"type": "integer", "multipleOf": 7}),
            vec![json!(0), json!(-14), json!(700), json!(999_999)],
            vec![json!(1), json!(-8), json!(705)],
        ),
        (
            json!({"type": "integer", "multipleOf": 25, "minimum": 50, "exclusiveMaximum": 150}),
            vec![json!(50), json!(75), json!(125)],
            vec![json!(25), json!(150), json!(60), json!(-50)],
        ),
        (
            json!({"type": "number", "multipleOf": 0.25, "minimum": -1.5}),
            vec![json!(0), json!(-1.5), json!(-0.25), json!(3.75), json!(2.5)],
            vec![json!(0.2), json!(-1.75), json!(1.125)],
        ),
        (
            json!({"type": "number", "multipleOf": 1}),
            vec![json!(0), json!(-17), json!(3)],
            vec![json!(0.5)],
        ),
        (
            json!({"type": "number", "minimum": 0.25, "maximum": 10.5}),
            vec![json!(0.25), json!(0.3), json!(1), json!(9.999_999), json!(10.5), json!(10.49)],
            vec![json!(0.249), json!(0), json!(10.51), json!(11), json!(-1)],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": -0.75, "exclusiveMaximum": -0.125}),
            vec![json!(-0.74), json!(-0.126), json!(-0.5)],
            vec![json!(-0.75), json!(-0.125), json!(0), json!(-1), json!(0.5)],
        ),
        (
            json!({"type": "integer", "minimum": 0.5, "maximum": 2.5}),
            vec![json!(1), json!(2)],
            vec![json!(0), json!(3)],
        ),
    ]
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
    for (schema_value, _, _) in schemas().into_iter().chain(schemas_of_texts()) {
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
    for (schema_value, good, bad) in schemas().into_iter().chain(schemas_of_texts()) {
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
        (json!({"not": {}}), "`not`"),
        (json!({"type": "object", "patternProperties": {"a": true}}), "`patternProperties`"),
        (json!({"type": "array", "uniqueItems": true}), "`uniqueItems`"),
        (json!({"type": "number", "multipleOf": 0.123_456_789}), "`multipleOf` of this many"),
        (json!({"if": {}, "then": {}}), "`if`"),
        (json!({"$ref": "other.json"}), "`$ref` to another document"),
        (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "`oneOf`"),
        (json!({"type": "string", "pattern": "(?=a)"}), "`(?`"),
        (json!({"type": "number", "minimum": 9_007_199_254_740_993_i64}), "a bound beyond"),
        (json!({"type": "number", "exclusiveMinimum": 10.000_000_000_000_01}), "this many digits"),
        (json!({"type": "number", "minimum": 1e-20}), "`minimum` of this size"),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]}),
            "`prefixItems` in a draft",
        ),
        (json!({"type": "object", "properties": {"a": {"not": {}}}}), "(at #/properties/a)"),
        (
            json!({"allOf": [{"items": {"type": "integer"}},
                {"prefixItems": [{"type": "string"}]}]}),
            "`items` beside",
        ),
        (
            json!({"allOf": [{"properties": {"a": true}, "additionalProperties": false},
                          {"properties": {"b": true}}]}),
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
    let mut deep = json!(true);
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep, "minItems": 2});
    }
    let mut wide = json!({"type": "integer"});
    for i in 0..12 {
        wide = json!({"anyOf": [
            {"type": "object", "properties": {format!("a{i}"): wide.clone()}},
            {"type": "object", "properties": {format!("b{i}"): wide}}]});
    }
    let many: Vec<String> = (0..40_000).map(|i| format!("{:x}", i * 2_654_435_761_u64)).collect();
    let bombs = [
        Source::Regex("((a{1000}){1000}){1000}".into()),
        Source::Regex("(.*a.{40})+".into()),
        Source::Regex("(x+x+)+y{9999}".into()),
        Source::JsonSchema(deep.to_string()),
        Source::JsonSchema(wide.to_string()),
        Source::JsonSchema(json!({"enum": many}).to_string()),
        Source::JsonSchema(json!({"type": "string", "maxLength": 100_000_000}).to_string()),
        Source::JsonSchema(json!({"type": "array", "minItems": 1_000_000_000}).to_string()),
        Source::JsonSchema(json!({"$ref": "#", "minItems": 1, "items": {"$ref": "#"}}).to_string()),
        Source::JsonSchema("[".repeat(100_000)),
        Source::Regex("a".repeat(10_000_000)),
        Source::Regex("(".repeat(100_000)),
    ];
    for bomb in &bombs {
        let started = std::time::Instant::now();
        let error = compile(bomb, &Limits::default()).unwrap_err();
        eprintln!("{:?} {error}", started.elapsed());
        assert!(!matches!(error, GrammarError::Empty), "{error}");
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
    for (schema_value, ..) in schemas().into_iter().chain(schemas_of_texts()) {
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

#[test]
fn text_is_free_until_its_marker() {
    let of = |once| Tagged {
        begin: "<<call>".into(),
        end: "</call>".into(),
        schema: json!({"type": "array", "items": {"type": "boolean"}}).to_string(),
        once,
    };
    let compiled = |once| compile(&Source::Tagged(of(once)), &Limits::default()).unwrap();
    let (many, once) = (compiled(false), compiled(true));
    for (text, of_many, of_once) in [
        ("", true, true),
        ("any text, \u{e9}\u{1F600}\0 </call> <call>", true, true),
        ("<<call", true, true),
        ("<<<call>", false, false),
        ("<<call>[true]</call>", true, true),
        ("So:\n<<<<call>\n[true, false]\n</call>", true, true),
        ("<<call>[true]</call>.", true, false),
        ("<<call>[]</call><<cal<<call>[]</call>", true, false),
        ("<<call>[1]</call>", false, false),
        ("<<call>[] </cal", false, false),
        ("<<<call>[]</call>", true, true),
    ] {
        assert_eq!(accepts(&many, text), of_many, "{text}");
        assert_eq!(accepts(&once, text), of_once, "{text}");
    }
    for (begin, end) in [("", "x"), ("x", ""), ("\u{e9}", "x")] {
        let tagged = Tagged { begin: begin.into(), end: end.into(), ..of(false) };
        assert!(compile(&Source::Tagged(tagged), &Limits::default()).is_err());
    }
    let mut random = Random(7);
    for _ in 0..200 {
        let Some(text) = sample(&many, &mut random) else { continue };
        let judge = |part: &str| {
            let body = part.split("</call>").next().unwrap();
            let value: Value = serde_json::from_str(body).unwrap();
            assert!(value.as_array().unwrap().iter().all(Value::is_boolean));
        };
        text.split("<<call>").skip(1).for_each(judge);
    }
}
