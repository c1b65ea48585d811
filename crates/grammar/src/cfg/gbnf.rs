//! GBNF, the notation of llama.cpp. A rule goes on until the next one begins, wherever lines end.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::ast::{Expr, Grammar, Names};
use super::cursor::Cursor;
use crate::GrammarError;

const COMMENTS: &[&str] = &["#"];

pub(super) fn parse(text: &str) -> Result<Grammar, GrammarError> {
    let mut parser = Parser { cursor: Cursor::new(text), names: Names::default() };
    parser.space();
    while parser.cursor.peek().is_some() {
        let at = parser.cursor.at();
        let name = parser.name();
        if name.is_empty() {
            return Err(parser.cursor.unexpected("a rule's name"));
        }
        parser.space();
        parser.cursor.expect("::=")?;
        parser.cursor.enter(name);
        let body = parser.choice(0)?;
        parser.cursor.enter("");
        parser.names.define(&parser.cursor, name, at, body)?;
    }
    parser.names.finish(&parser.cursor, "root", |_| false, Vec::new())
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    names: Names,
}

impl<'a> Parser<'a> {
    fn space(&mut self) {
        self.cursor.space(COMMENTS);
    }
    fn name(&mut self) -> &'a str {
        self.cursor.take_while(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    }

    fn choice(&mut self, depth: usize) -> Result<Expr, GrammarError> {
        self.cursor.check_depth(depth)?;
        let mut branches = vec![self.sequence(depth)?];
        while self.cursor.eat("|") {
            branches.push(self.sequence(depth)?);
        }
        Ok(Expr::Choice(branches))
    }

    fn sequence(&mut self, depth: usize) -> Result<Expr, GrammarError> {
        let mut parts = Vec::new();
        self.space();
        while let Some(part) = self.part(depth)? {
            parts.push(self.repeated(part, depth)?);
        }
        Ok(Expr::Sequence(parts))
    }

    /// The next part of a sequence, if it goes on.
    fn part(&mut self, depth: usize) -> Result<Option<Expr>, GrammarError> {
        let at = self.cursor.at();
        let part = match self.cursor.peek() {
            None | Some('|' | ')') => return Ok(None),
            Some('"') => self.text()?,
            Some('[') => self.class()?,
            Some('.') => {
                self.cursor.next();
                Expr::Chars(vec![('\0', char::MAX)])
            }
            Some('(') => {
                self.cursor.next();
                let inner = self.choice(depth + 1)?;
                self.cursor.expect(")")?;
                inner
            }
            Some('<' | '!') => {
                return Err(self.cursor.unsupported("a token (`<…>`) in a grammar"));
            }
            Some(_) => {
                let name = self.name();
                if name.is_empty() {
                    return Err(self.cursor.unexpected("a part of a rule"));
                }
                let behind = self.cursor.at();
                self.space();
                if self.cursor.rest().starts_with("::=") {
                    // The next rule.
                    self.cursor.back_to(at);
                    return Ok(None);
                }
                self.cursor.back_to(behind);
                Expr::Rule(self.names.number(name, at))
            }
        };
        self.space();
        Ok(Some(part))
    }

    /// A part with the counts behind it.
    fn repeated(&mut self, part: Expr, depth: usize) -> Result<Expr, GrammarError> {
        let (mut part, mut depth) = (part, depth);
        loop {
            let counts = match self.cursor.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => (0, Some(0)),
                _ => return Ok(part),
            };
            let counts =
                if self.cursor.next() == Some('{') { self.cursor.counts()? } else { counts };
            depth += 1;
            part = self.cursor.repeat(part, counts, depth)?;
            self.space();
        }
    }

    fn text(&mut self) -> Result<Expr, GrammarError> {
        self.cursor.next();
        let mut text = String::new();
        while !self.cursor.eat("\"") {
            text.push(self.char("a text's end")?);
        }
        Ok(Expr::Text(text))
    }

    fn class(&mut self) -> Result<Expr, GrammarError> {
        self.cursor.next();
        let is_negated = self.cursor.eat("^");
        let mut ranges = Vec::new();
        while !self.cursor.eat("]") {
            let low = self.char("a class's end")?;
            let is_range =
                self.cursor.rest().starts_with('-') && !self.cursor.rest().starts_with("-]");
            let high = if is_range {
                self.cursor.next();
                self.char("a range's end")?
            } else {
                low
            };
            if low > high {
                return Err(self.cursor.invalid("a range of characters is reversed"));
            }
            ranges.push(ClassUnicodeRange::new(low, high));
        }
        let mut class = ClassUnicode::new(ranges);
        if is_negated {
            class.negate();
        }
        if class.ranges().is_empty() {
            return Err(self.cursor.unsupported("a class without characters"));
        }
        Ok(Expr::Chars(class.ranges().iter().map(|range| (range.start(), range.end())).collect()))
    }

    fn char(&mut self, wanted: &str) -> Result<char, GrammarError> {
        match self.cursor.next() {
            None => Err(self.cursor.unexpected(wanted)),
            Some('\\') => self.cursor.escape(&[]),
            Some(c) => Ok(c),
        }
    }
}
