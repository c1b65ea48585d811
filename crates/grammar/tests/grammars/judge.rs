//! Grammars written by hand, and their texts by set arithmetic: where a part that begins here may
//! end. No rule begins with itself.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// A small generator of numbers, the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

pub enum Part {
    Text(&'static str),
    /// Characters and ranges of them, `^` before what it is not.
    Class(&'static str),
    Rule(&'static str),
    Sequence(Vec<Part>),
    /// The first one ends soonest.
    Choice(Vec<Part>),
    Repeat(Box<Part>, usize, Option<usize>),
}

pub fn t(text: &'static str) -> Part {
    Part::Text(text)
}
pub fn c(class: &'static str) -> Part {
    Part::Class(class)
}
pub fn r(rule: &'static str) -> Part {
    Part::Rule(rule)
}
pub fn s<const N: usize>(parts: [Part; N]) -> Part {
    Part::Sequence(parts.into())
}
pub fn a<const N: usize>(parts: [Part; N]) -> Part {
    Part::Choice(parts.into())
}
pub fn n(part: Part, min: usize, max: Option<usize>) -> Part {
    Part::Repeat(Box::new(part), min, max)
}
/// Optional, many, at least one.
pub fn o(part: Part) -> Part {
    n(part, 0, Some(1))
}
pub fn m(part: Part) -> Part {
    n(part, 0, None)
}
pub fn p(part: Part) -> Part {
    n(part, 1, None)
}

/// A grammar; it begins with the rule `root`.
pub struct Judge {
    rules: HashMap<&'static str, Part>,
}

type Ends = BTreeSet<usize>;

struct Reading<'a> {
    judge: &'a Judge,
    text: Vec<char>,
    known: RefCell<HashMap<(&'static str, usize), Ends>>,
}

impl Judge {
    pub fn new<const N: usize>(rules: [(&'static str, Part); N]) -> Judge {
        Judge { rules: rules.into() }
    }

    pub fn accepts(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let reading = Reading { judge: self, text, known: RefCell::default() };
        reading.ends(&r("root"), 0).contains(&reading.text.len())
    }

    /// A random text.
    pub fn derive(&self, random: &mut Random) -> String {
        let mut text = String::new();
        self.write(&r("root"), 0, random, &mut text);
        text
    }

    fn write(&self, part: &Part, depth: usize, random: &mut Random, text: &mut String) {
        let is_deep = depth > 12 || text.len() > 60;
        match part {
            Part::Text(t) => text.push_str(t),
            Part::Class(class) => {
                let all = ('\0'..='\u{ff}').chain(['\u{1F600}', '\n']);
                let matching: Vec<char> = all.filter(|&c| matches(class, c)).collect();
                text.push(matching[random.below(matching.len())]);
            }
            Part::Rule(name) => self.write(&self.rules[name], depth + 1, random, text),
            Part::Sequence(parts) => {
                parts.iter().for_each(|part| self.write(part, depth, random, text));
            }
            Part::Choice(parts) => {
                let at = if is_deep { 0 } else { random.below(parts.len()) };
                self.write(&parts[at], depth, random, text);
            }
            Part::Repeat(part, min, max) => {
                let most = if is_deep { *min } else { max.unwrap_or(min + 3).min(min + 3) };
                for _ in 0..min + random.below(most - min + 1) {
                    self.write(part, depth, random, text);
                }
            }
        }
    }
}

impl Reading<'_> {
    fn ends(&self, part: &Part, at: usize) -> Ends {
        match part {
            Part::Text(t) => {
                let t: Vec<char> = t.chars().collect();
                self.text[at..].starts_with(&t).then_some(at + t.len()).into_iter().collect()
            }
            Part::Class(class) => {
                let next = self.text.get(at).filter(|&&c| matches(class, c));
                next.map(|_| at + 1).into_iter().collect()
            }
            Part::Rule(name) => {
                if let Some(ends) = self.known.borrow().get(&(*name, at)) {
                    return ends.clone();
                }
                let ends = self.ends(&self.judge.rules[name], at);
                self.known.borrow_mut().insert((*name, at), ends.clone());
                ends
            }
            Part::Sequence(parts) => {
                let mut ends = Ends::from([at]);
                for part in parts {
                    ends = ends.into_iter().flat_map(|at| self.ends(part, at)).collect();
                }
                ends
            }
            Part::Choice(parts) => parts.iter().flat_map(|part| self.ends(part, at)).collect(),
            Part::Repeat(part, min, max) => {
                let mut all = Ends::new();
                let mut last = Ends::from([at]);
                for count in 0.. {
                    if count >= *min {
                        let before = all.len();
                        all.extend(&last);
                        if all.len() == before {
                            break;
                        }
                    }
                    if max.is_some_and(|max| count >= max) {
                        break;
                    }
                    last = last.into_iter().flat_map(|at| self.ends(part, at)).collect();
                }
                all
            }
        }
    }
}

fn matches(class: &str, c: char) -> bool {
    let (class, is_negated) = match class.strip_prefix('^') {
        Some(class) => (class, true),
        None => (class, false),
    };
    let chars: Vec<char> = class.chars().collect();
    let mut found = false;
    let mut i = 0;
    while i < chars.len() {
        if i + 2 < chars.len() && chars[i + 1] == '-' {
            found |= (chars[i]..=chars[i + 2]).contains(&c);
            i += 3;
        } else {
            found |= chars[i] == c;
            i += 1;
        }
    }
    found != is_negated
}
