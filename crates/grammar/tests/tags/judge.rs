//! Structural tags as a tree, and what texts they have: by trying everything, without an automaton.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Value, json};

/// A small generator of numbers, the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

type Text = &'static str;

#[derive(Debug, Clone)]
pub enum Format {
    Const(Text),
    Regex(Text),
    /// JSON arrays of JSON arrays.
    Nested,
    /// `x` in any number of parentheses, as a context-free grammar.
    Parentheses,
    Any(Vec<Text>),
    Sequence(Vec<Format>),
    Or(Vec<Format>),
    Repeat(Box<Format>, u32, Option<u32>),
    Tag(Tag),
    Triggered {
        triggers: Vec<Text>,
        tags: Vec<Tag>,
        excludes: Vec<Text>,
        first: bool,
        once: bool,
    },
    Separated {
        tags: Vec<Tag>,
        separator: Text,
        some: bool,
        once: bool,
    },
}

#[derive(Debug, Clone)]
pub struct Tag {
    begin: String,
    content: Box<Format>,
    ends: Vec<Text>,
}

pub const ALPHABET: &[&str] = &[
    "<", "a", "b", ">", "/", "é", "(", "x", ")", "[", "]", ",", "<a>", "</a>", "<b", "b>", "é/",
    "a<", "</",
];
// Some begin as they go on: what looks like the beginning of one may be the middle of another.
const BEGINS: &[Text] = &["<a>", "<é>", "aab", ""];
const TRIGGERS: &[Text] = &["<a", "<b", "<", "aa", "<é", "aab", "a<a<b", "aaa"];
const ENDS: &[Text] = &["</a>", "/", "a", "é/", "bb", "<b", "</</a", "aab"];

const PATTERNS: &[Text] = &["a*", "(ab|<)+", "[^a]{0,2}", "é?x"];
static JUDGES: LazyLock<Vec<regex::Regex>> = LazyLock::new(|| {
    let judge = |pattern| regex::Regex::new(&format!("^(?:{pattern})$")).expect("a pattern");
    PATTERNS.iter().map(judge).collect()
});

impl Format {
    pub fn random(random: &mut Random, depth: usize) -> Format {
        let kinds = if depth == 0 { 5 } else { 16 };
        let some = |random: &mut Random| -> Vec<Format> {
            (0..1 + random.below(3)).map(|_| Format::random(random, depth - 1)).collect()
        };
        match random.below(kinds) {
            0 => Format::Const(random.one(&["a", "<a", "</", "éb", ""])),
            1 => Format::Regex(random.one(PATTERNS)),
            2 => Format::Nested,
            3 => Format::Parentheses,
            4 => Format::Any(some_texts(random, &["</a>", "b", "<a", "x"], 2)),
            5 => Format::Sequence(some(random)),
            6 => Format::Or(some(random)),
            7 => {
                let part = Box::new(Format::random(random, depth - 1));
                let min = random.below(3) as u32;
                let max = random.coin().then(|| min + random.below(3) as u32);
                Format::Repeat(part, min, max)
            }
            8 => Format::Tag(Tag::random(random, depth)),
            9 => Format::Separated {
                tags: Tag::some(random, depth),
                separator: random.one(&[",", "", "<a", "a"]),
                some: random.coin(),
                once: random.coin(),
            },
            _ => {
                let first = vec![random.one(TRIGGERS)];
                let triggers = [first, some_texts(random, TRIGGERS, 1)].concat();
                let mut tags = Tag::some(random, depth);
                for tag in &mut tags {
                    let begin = random.one(&triggers).to_owned();
                    tag.begin = begin + random.one(&["", ">", "a", "x<"]);
                }
                let excludes = some_texts(random, &["x", "/a", "<aé", "</a>"], 1);
                let (first, once) = (random.coin(), random.coin());
                Format::Triggered { triggers, tags, excludes, first, once }
            }
        }
    }

    pub fn json(&self) -> Value {
        let all = |parts: &[Format]| parts.iter().map(Format::json).collect::<Vec<_>>();
        let tags = |tags: &[Tag]| tags.iter().map(Tag::json).collect::<Vec<_>>();
        match self {
            Format::Const(value) => json!({"type": "const_string", "value": value}),
            Format::Regex(pattern) => json!({"type": "regex", "pattern": pattern}),
            Format::Nested => json!({"type": "json_schema", "json_schema": {
                "$ref": "#/$defs/n",
                "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}}),
            Format::Parentheses => {
                json!({"type": "grammar", "grammar": "root ::= \"(\" root \")\" | \"x\""})
            }
            Format::Any(excludes) => json!({"type": "any_text", "excludes": excludes}),
            Format::Sequence(parts) => json!({"type": "sequence", "elements": all(parts)}),
            Format::Or(parts) => json!({"type": "or", "elements": all(parts)}),
            Format::Repeat(part, 0, Some(1)) => {
                json!({"type": "optional", "content": part.json()})
            }
            Format::Repeat(part, 0, None) => json!({"type": "star", "content": part.json()}),
            Format::Repeat(part, 1, None) => json!({"type": "plus", "content": part.json()}),
            Format::Repeat(part, min, max) => {
                let max = max.map_or(-1, i64::from);
                json!({"type": "repeat", "min": min, "max": max, "content": part.json()})
            }
            Format::Tag(tag) => tag.json(),
            Format::Triggered { triggers, tags: of, excludes, first, once } => json!({
                "type": "triggered_tags", "triggers": triggers, "tags": tags(of), "excludes": excludes,
                "at_least_one": first, "stop_after_first": once}),
            Format::Separated { tags: of, separator, some, once } => json!({
                "type": "tags_with_separator", "tags": tags(of), "separator": separator,
                "at_least_one": some, "stop_after_first": once}),
        }
    }

    /// All of a text is one of the format.
    pub fn has(&self, text: &str) -> bool {
        self.ends_in(text, 0, &[]).contains(&text.len())
    }

    /// Where a text of the format that begins at `from` may be over, one of `ends` included.
    fn ends_in(&self, text: &str, from: usize, ends: &[Text]) -> BTreeSet<usize> {
        let rest = &text[from..];
        let places = || rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
        let those = |is: &dyn Fn(&str) -> bool| -> BTreeSet<usize> {
            places().filter(|&to| is(&rest[..to])).map(|to| from + to).collect()
        };
        let found = match self {
            Format::Any(excludes) => return free(text, from, ends, excludes, &[], &[]).over,
            Format::Triggered { triggers, tags, excludes, first, once } => {
                return triggered(text, from, ends, (triggers, tags, excludes), (*first, *once));
            }
            Format::Or(parts) => {
                return parts.iter().flat_map(|part| part.ends_in(text, from, ends)).collect();
            }
            Format::Sequence(parts) => {
                let mut found = BTreeSet::from([from]);
                for (i, part) in parts.iter().enumerate() {
                    let ends = if i + 1 == parts.len() { ends } else { &[] };
                    found = each(&found, |at| part.ends_in(text, at, ends));
                }
                return found;
            }
            // What is there or not may be free text.
            Format::Repeat(part, 0, Some(1)) => {
                let mut found = part.ends_in(text, from, ends);
                found.extend(closed(text, &BTreeSet::from([from]), ends));
                return found;
            }
            Format::Const(value) => those(&|part| part == *value),
            Format::Regex(pattern) => {
                let judge = PATTERNS.iter().position(|known| known == pattern).expect("known");
                those(&|part| JUDGES[judge].is_match(part))
            }
            Format::Nested => those(&|part| {
                let value = serde_json::from_str::<Value>(part);
                value.is_ok_and(|value| value.is_array() && is_nested(&value))
            }),
            Format::Parentheses => those(&|part| {
                let depth = part.chars().take_while(|c| *c == '(').count();
                part == format!("{}x{}", "(".repeat(depth), ")".repeat(depth))
            }),
            Format::Repeat(part, min, max) => repeated(part, text, from, *min, *max),
            Format::Tag(tag) => tag.ends_in(text, from),
            Format::Separated { tags, separator, some, once } => {
                let one = |at: usize| -> BTreeSet<usize> {
                    tags.iter().flat_map(|tag| tag.ends_in(text, at)).collect()
                };
                let mut found = one(from);
                let mut last = if *once { BTreeSet::new() } else { found.clone() };
                while !last.is_empty() {
                    let next = each(&last, |at| {
                        let behind =
                            text[at..].starts_with(separator).then(|| at + separator.len());
                        behind.map(one).unwrap_or_default()
                    });
                    last = next.difference(&found).copied().collect();
                    found.extend(&last);
                }
                found.extend((!some).then_some(from));
                found
            }
        };
        closed(text, &found, ends)
    }
}

fn repeated(part: &Format, text: &str, from: usize, min: u32, max: Option<u32>) -> BTreeSet<usize> {
    let mut at = BTreeSet::from([from]);
    let mut found = BTreeSet::new();
    // Texts are shorter than this.
    for count in 0..=max.unwrap_or(70) {
        if count >= min {
            found.extend(&at);
        }
        if at.is_empty() {
            break;
        }
        at = each(&at, |at| part.ends_in(text, at, &[]));
    }
    found
}

fn is_nested(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(is_nested))
}

fn each(places: &BTreeSet<usize>, next: impl Fn(usize) -> BTreeSet<usize>) -> BTreeSet<usize> {
    places.iter().flat_map(|&at| next(at)).collect()
}

/// One of `ends` comes there, or nothing.
fn closed(text: &str, places: &BTreeSet<usize>, ends: &[Text]) -> BTreeSet<usize> {
    if ends.is_empty() {
        return places.clone();
    }
    each(places, |at| {
        let those = ends.iter().filter(|end| text[at..].starts_with(**end));
        those.map(|end| at + end.len()).collect()
    })
}

/// Where free text may be over, and where tags' contents begin.
#[derive(Default)]
struct Free<'a> {
    over: BTreeSet<usize>,
    inside: Vec<(usize, &'a Tag)>,
}

fn free<'a>(
    text: &str,
    from: usize,
    ends: &[Text],
    excludes: &[Text],
    triggers: &[Text],
    tags: &'a [Tag],
) -> Free<'a> {
    let mut found = Free::default();
    for (at, _) in text[from..].char_indices().chain([(text.len() - from, ' ')]) {
        let (at, come) = (from + at, &text[from..from + at]);
        if ends.iter().any(|end| come.ends_with(end)) {
            found.over.insert(at);
            return found;
        }
        if let Some(trigger) = triggers.iter().find(|trigger| come.ends_with(**trigger)) {
            for tag in tags.iter().filter(|tag| tag.begin.starts_with(*trigger)) {
                let begin = at - trigger.len();
                if text[begin..].starts_with(&tag.begin) {
                    found.inside.push((begin + tag.begin.len(), tag));
                }
            }
            return found;
        }
        if excludes.iter().any(|text| come.ends_with(text)) {
            return found;
        }
        found.over.extend(ends.is_empty().then_some(at));
    }
    found
}

fn triggered(
    text: &str,
    from: usize,
    ends: &[Text],
    (triggers, tags, excludes): (&[Text], &[Tag], &[Text]),
    (first, once): (bool, bool),
) -> BTreeSet<usize> {
    let mut over = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut behind = BTreeSet::new();
    let mut open = Vec::new();
    if first {
        behind.extend(tags.iter().flat_map(|tag| tag.ends_in(text, from)));
        open.extend(if once { Vec::new() } else { behind.iter().copied().collect() });
    } else {
        open.push(from);
    }
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        let found = free(text, at, ends, excludes, triggers, tags);
        over.extend(found.over);
        for (at, tag) in found.inside {
            let places = tag.content.ends_in(text, at, &tag.ends);
            if once {
                behind.extend(places);
            } else {
                open.extend(places);
            }
        }
    }
    if once {
        over.extend(closed(text, &behind, ends));
    }
    over
}

impl Tag {
    fn random(random: &mut Random, depth: usize) -> Tag {
        let first = vec![random.one(ENDS)];
        let ends = [first, some_texts(random, ENDS, 1)].concat();
        let content = Box::new(Format::random(random, depth - 1));
        Tag { begin: random.one(BEGINS).to_owned(), content, ends }
    }
    fn some(random: &mut Random, depth: usize) -> Vec<Tag> {
        (0..1 + random.below(2)).map(|_| Tag::random(random, depth)).collect()
    }
    fn json(&self) -> Value {
        let end = if let [end] = self.ends[..] { json!(end) } else { json!(self.ends) };
        json!({"type": "tag", "begin": self.begin, "content": self.content.json(), "end": end})
    }
    fn ends_in(&self, text: &str, from: usize) -> BTreeSet<usize> {
        if !text[from..].starts_with(&self.begin) {
            return BTreeSet::new();
        }
        self.content.ends_in(text, from + self.begin.len(), &self.ends)
    }
}

fn some_texts(random: &mut Random, of: &[Text], most: usize) -> Vec<Text> {
    (0..random.below(most + 1)).map(|_| random.one(of)).collect()
}
