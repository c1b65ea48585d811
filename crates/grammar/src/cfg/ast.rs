//! What both notations say.

use std::collections::HashMap;

use super::cursor::Cursor;
use crate::GrammarError;
use crate::regex::Options;

/// A part of a rule.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Text(String),
    /// One character of these ranges.
    Chars(Vec<(char, char)>),
    Pattern(Pattern),
    /// A text of the rule of this number.
    Rule(usize),
    Sequence(Vec<Expr>),
    Choice(Vec<Expr>),
    Repeat {
        part: Box<Expr>,
        min: u32,
        max: Option<u32>,
    },
}

/// A regular expression, as the `regex` crate reads it.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) options: Options,
    /// Where it is, for complaints.
    pub(crate) at: usize,
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// One of Lark's terminals: ignored text does not come inside of it.
    pub(crate) is_terminal: bool,
    pub(crate) body: Expr,
}

#[derive(Debug)]
pub(crate) struct Grammar {
    pub(crate) rules: Vec<Rule>,
    /// The number of the rule that the answer obeys.
    pub(crate) start: usize,
    /// What may come between terminals, and before and behind them.
    pub(crate) ignored: Vec<Expr>,
}

/// Rules by name while they are read: a rule may be used before it is defined.
#[derive(Default)]
pub(crate) struct Names {
    numbers: HashMap<String, usize>,
    rules: Vec<Named>,
}

struct Named {
    name: String,
    /// Where the name came first.
    at: usize,
    body: Option<Expr>,
}

impl Names {
    /// The number of a rule.
    pub(crate) fn number(&mut self, name: &str, at: usize) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.rules.len();
        self.numbers.insert(name.to_owned(), number);
        self.rules.push(Named { name: name.to_owned(), at, body: None });
        number
    }

    /// Defines a rule whose name is at `at`.
    pub(crate) fn define(
        &mut self,
        cursor: &Cursor<'_>,
        name: &str,
        at: usize,
        body: Expr,
    ) -> Result<(), GrammarError> {
        let number = self.number(name, at);
        if self.rules[number].body.replace(body).is_some() {
            let message = format!("the rule `{name}` is defined twice");
            return Err(GrammarError::invalid(message, &cursor.place(at)));
        }
        Ok(())
    }

    /// All rules, once each of them must be defined.
    pub(crate) fn finish(
        self,
        cursor: &Cursor<'_>,
        start: &str,
        is_terminal: impl Fn(&str) -> bool,
        ignored: Vec<Expr>,
    ) -> Result<Grammar, GrammarError> {
        let missing = |name: &str, place: &str| {
            GrammarError::invalid(format!("the rule `{name}` is not defined"), place)
        };
        let start = *self.numbers.get(start).ok_or_else(|| missing(start, ""))?;
        let mut rules = Vec::with_capacity(self.rules.len());
        for Named { name, at, body } in self.rules {
            let body = body.ok_or_else(|| missing(&name, &cursor.place(at)))?;
            rules.push(Rule { is_terminal: is_terminal(&name), name, body });
        }
        Ok(Grammar { rules, start, ignored })
    }
}
