//! Context-free grammars, judged by recognisers that are written out here by hand: what an
//! automaton says they must accept, what they derive it must accept, and texts that differ in a
//! place both accept or none.
#![allow(clippy::unwrap_used)]

mod cases;
mod judge;

use cases::cases;
use judge::Random;
use saccade_grammar::{Automaton, GrammarError, Limits, Source, Walk, compile};

fn grammar(text: &str) -> Result<Automaton, GrammarError> {
    compile(&Source::Grammar(text.into()), &Limits::default())
}

fn accepts(automaton: &Automaton, text: &str) -> bool {
    let mut walk = Walk::start();
    walk.take_all(automaton, text.as_bytes()) && walk.may_end(automaton)
}

/// A random text of the automaton, if it ends within a bound.
fn sample(automaton: &Automaton, random: &mut Random) -> Option<String> {
    let (mut walk, mut text) = (Walk::start(), Vec::new());
    while text.len() < 150 {
        let next = walk.next_bytes(automaton);
        if walk.may_end(automaton) && (next.is_empty() || random.below(4) == 0) {
            return Some(String::from_utf8(text).expect("an automaton's texts are UTF-8"));
        }
        assert!(!next.is_empty(), "a dead end after {:?}", String::from_utf8_lossy(&text));
        let byte = next[random.below(next.len())];
        assert!(walk.take(automaton, byte));
        text.push(byte);
    }
    None
}

#[test]
fn an_automatons_texts_are_its_grammars_and_the_other_way_round() {
    let mut random = Random(7);
    for case in cases() {
        let alphabet: Vec<char> = case.alphabet.chars().collect();
        for source in case.sources {
            let automaton = grammar(source).unwrap_or_else(|e| panic!("{source}\n{e}"));
            eprintln!("{} words", automaton.words().len());
            let agree = |text: &str, how: &str| {
                let (is, must) = (accepts(&automaton, text), case.judge.accepts(text));
                assert_eq!(is, must, "{how} {text:?} of\n{source}");
            };
            let mut seen = 0;
            for _ in 0..150 {
                let sampled = sample(&automaton, &mut random);
                let derived = case.judge.derive(&mut random);
                for (text, how) in [(sampled, "sampled"), (Some(derived), "derived")] {
                    let Some(text) = text.filter(|text| text.len() < 150) else { continue };
                    seen += 1;
                    assert!(case.judge.accepts(&text), "{how} {text:?} of\n{source}");
                    agree(&text, how);
                    for _ in 0..3 {
                        agree(&changed(&text, &alphabet, &mut random), "changed");
                    }
                }
            }
            assert!(seen > 120, "only {seen} texts of\n{source}");
            for _ in 0..1000 {
                let len = random.below(8);
                let text: String =
                    (0..len).map(|_| alphabet[random.below(alphabet.len())]).collect();
                agree(&text, "random");
            }
        }
    }
}

/// A text that differs in a place.
fn changed(text: &str, alphabet: &[char], random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = random.below(chars.len() + 1);
    let other = alphabet[random.below(alphabet.len())];
    match random.below(3) {
        0 => chars.insert(at, other),
        1 if at < chars.len() => chars[at] = other,
        _ if at < chars.len() => {
            chars.remove(at);
        }
        _ => chars.push(other),
    }
    chars.into_iter().collect()
}

#[test]
fn nesting_ends_where_the_stack_does() {
    let automaton = grammar("root ::= \"(\" root \")\" | \"x\"").unwrap();
    let nested = |depth: usize| format!("{}x{}", "(".repeat(depth), ")".repeat(depth));
    for depth in [0, 1, 20, 32] {
        assert!(accepts(&automaton, &nested(depth)), "{depth}");
    }
    assert!(!accepts(&automaton, &nested(33)));
    // No place of the stack is taken where nothing remains to be said.
    for source in [
        "root ::= \"a\" b\nb ::= \"c\" root | \"d\" | \"e\" root",
        "start: start \"e\"? \"a\" | \"a\"",
    ] {
        let automaton = grammar(source).unwrap();
        let text = "ae".repeat(500) + if source.starts_with("root") { "ad" } else { "a" };
        assert!(accepts(&automaton, &text), "{source}");
    }
}

/// What is refused, why, and where.
#[test]
fn what_is_not_understood_is_refused_by_name_and_place() {
    for (source, wanted) in [
        ("", "the rule `start` is not defined"),
        ("# ::=\nroot : \"a\"", "the rule `start` is not defined"),
        ("a ::= \"b\"", "the rule `root` is not defined"),
        ("root ::= a\nb ::= \"b\"", "the rule `a` is not defined (at line 1, column 10"),
        ("root ::= \"a\"\nroot ::= \"b\"", "`root` is defined twice (at line 2, column 1"),
        ("root ::= \"a\" )", "expected a rule's name, found `)` (at line 1, column 14)"),
        ("root ::= \"a\"\n  (\"b\" | $)", "`$` (at line 2, column 10, in the rule `root`)"),
        ("root ::= (\"a\"", "expected `)`, found the end"),
        ("root ::= \"a", "expected a text's end, found the end"),
        ("root ::= \"\\q\"", "expected an escaped character, found `q`"),
        ("root ::= \"\\u12\"", "expected 4 hexadecimal digits"),
        ("root ::= [\\uD800]", "U+D800 is not a character"),
        ("root ::= [z-a]", "a range of characters is reversed"),
        ("root ::= []", "a class without characters"),
        ("root ::= [a", "expected a class's end"),
        ("root ::= \"a\"{3,2}", "a count's bounds are reversed"),
        ("root ::= \"a\"{}", "expected a number"),
        ("root ::= \"a\"{99999999999}", "a count is too large"),
        ("root ::= <think> .*", "a token (`<…>`)"),
        ("root ::= * \"a\"", "expected a part of a rule, found `*`"),
        ("start: \"a\" b\nb: c", "the rule `c` is not defined (at line 2, column 4"),
        ("start: A\nA: B \"a\"\nB: A?", "the terminal `A`, which refers to itself,"),
        (
            "start: A\nA: b\nb: \"b\"",
            "a terminal cannot use the rule `b` (at line 2, column 4, in the rule `A`)",
        ),
        ("start: /a(/", "not a regular expression"),
        (
            "start: \"x\"\n  | /\\bx/",
            "of a pattern is not supported (at line 2, column 5, in the rule `start`)",
        ),
        ("start: /a/x", "the flag `x`"),
        ("start: /a\n/", "expected a regular expression's end"),
        ("start: \"a\nb\"", "expected a text's end"),
        ("start: \"b\"..\"a\"", "a range is from one character"),
        ("start: %json {\"type\": \"object\"}", "`%json` in a rule"),
        ("start: <|eot|>", "a token (`<…>`)"),
        ("start: A & B", "`&` in a grammar"),
        ("start: ~A", "`~` in a grammar"),
        ("start: @other", "`@` in a grammar"),
        ("start.2: \"a\"", "a priority"),
        ("start[capture]: \"a\"", "an option of a rule"),
        ("start{a}: a", "a template"),
        ("%declare A\nstart: A", "`%declare`"),
        ("%import python.NAME\nstart: NAME", "`%import` of anything but `common`"),
        ("%import common.NAME\nstart: NAME", "`common.NAME`"),
        ("start: \"a\" : \"b\"", "expected a part of a rule, found `:`"),
        ("start: (\"a\" \"b\"", "expected `)`, found the end"),
        // Ambiguous: where a text of the rule ends depends on what comes much later.
        (
            "root ::= p\np ::= \"a\" p \"a\" | \"b\" | \"b\" \"a\"",
            "a rule, `p`, that may, within itself, end",
        ),
        (
            "root ::= s\ns ::= \"i\" s (\"e\" s)? | \"x\"",
            "a rule, `s`, that may, within itself, end",
        ),
        (
            "root ::= x | y\nx ::= \"a\" x \"b\" | \"c\"\ny ::= \"a\" y \"c\" | \"c\"",
            "cannot be told from what else",
        ),
        (
            "root ::= a\na ::= b \"x\" | w \"p\"\nb ::= w a \"z\" | \"w\"\nw ::= \" \"?",
            "cannot be told from what else",
        ),
    ] {
        let error = grammar(source).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{source}\n{error}");
    }
    for (source, wanted) in [
        ("root ::= root \"a\"", GrammarError::Unsatisfiable),
        ("root ::= \"a\" root", GrammarError::Unsatisfiable),
        ("root ::= \"\"", GrammarError::Empty),
        ("root ::= (\"\"*)+ root?", GrammarError::Empty),
    ] {
        assert_eq!(grammar(source), Err(wanted), "{source}");
    }
}

#[test]
fn bombs_are_refused_by_a_bound() {
    let chain: String = (0..15_000).map(|i| format!("a{i}::=a{}?\n", i + 1)).collect();
    let cycle: String = (0..5_000)
        .map(|i| format!("a{i}::=\"x\" a{}|a{} \"y\"\n", (i + 1) % 5000, (i * 7 + 3) % 5000))
        .collect();
    let doubling: String = (0..40).map(|i| format!("a{i} ::= a{0} a{0}\n", i + 1)).collect();
    for (name, bomb) in [
        ("parentheses", format!("root ::= {}", "(".repeat(100_000))),
        ("optional", format!("root ::= \"a\"{}", "?".repeat(100_000))),
        ("brackets", format!("start: {}", "[".repeat(100_000))),
        ("counts", "root ::= ((\"a\"{1000}){1000}){1000}".to_owned()),
        ("empty counts", "root ::= \"\"{4000000000} \"a\"".to_owned()),
        ("chain", format!("root ::= a0\n{chain}a15000 ::= \"x\"")),
        ("cycle", format!("root ::= a0\n{cycle}")),
        ("doubling", format!("root ::= a0 \"b\"\n{doubling}a40 ::= \"a\"?")),
        ("classes", format!("start: /{}/", "\\w".repeat(50_000))),
        ("subsets", "root ::= ([ab]* \"a\" [ab]{40} \"c\")*".to_owned()),
        ("long", "a".repeat(10_000_000)),
    ] {
        let started = std::time::Instant::now();
        let error = grammar(&bomb).map(|_| ()).unwrap_err().to_string();
        eprintln!("{name}: {:?} {error}", started.elapsed());
        assert!(!error.contains("obey"), "{name}: {error}");
    }
}

/// Where plain text may go on for long, it does: what the device takes from the words.
#[test]
fn from_plain_places_plain_text_goes_on() {
    let mut random = Random(5);
    let mut plain = 0;
    for case in cases() {
        for source in case.sources {
            let automaton = grammar(source).unwrap();
            for _ in 0..20 {
                let mut walk = Walk::start();
                for _ in 0..60 {
                    let mut ahead = walk.clone();
                    for _ in 0..walk.plain_chars(&automaton) {
                        let next = [" ", "!", "a", "~", "\u{e9}", "\u{10ffff}"][random.below(6)];
                        assert!(ahead.take_all(&automaton, next.as_bytes()), "{source}");
                        plain += 1;
                    }
                    let next = walk.next_bytes(&automaton);
                    if next.is_empty() || !walk.take(&automaton, next[random.below(next.len())]) {
                        break;
                    }
                }
            }
        }
    }
    assert!(plain > 1000, "only {plain} plain characters");
}
