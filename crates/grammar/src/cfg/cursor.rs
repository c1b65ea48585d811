//! A place in a grammar's text, and what both notations write alike.

use super::ast::Expr;
use crate::GrammarError;

/// Parts within parts: parentheses and what repeats.
const MAX_NESTING: usize = 64;

pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The rule that is being read.
    rule: &'a str,
}

/// The place of a byte of a text and of a rule, for complaints.
pub(crate) fn place(text: &str, at: usize, rule: &str) -> String {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let rule = if rule.is_empty() { String::new() } else { format!(", in the rule `{rule}`") };
    format!("line {line}, column {column}{rule}")
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0, rule: "" }
    }
    /// A place in the text.
    pub(crate) fn place(&self, at: usize) -> String {
        place(self.text, at, self.rule)
    }
    pub(crate) fn at(&self) -> usize {
        self.at
    }
    /// Complaints from here on are about this rule.
    pub(crate) fn enter(&mut self, rule: &'a str) {
        self.rule = rule;
    }
    /// Goes back to where it was.
    pub(crate) fn back_to(&mut self, at: usize) {
        self.at = at;
    }
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }
    pub(crate) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }
    /// Takes `token` if it is next.
    pub(crate) fn eat(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.at += token.len();
        }
        is_next
    }
    pub(crate) fn expect(&mut self, token: &str) -> Result<(), GrammarError> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }
    /// Takes the characters for which `is_part` holds.
    pub(crate) fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Takes white space and comments.
    pub(crate) fn space(&mut self, comments: &[&str]) {
        self.blanks(comments);
        while self.eat("\n") {
            self.blanks(comments);
        }
    }
    /// Takes white space and comments up to the line's end.
    pub(crate) fn blanks(&mut self, comments: &[&str]) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\u{c}'));
        if comments.iter().any(|mark| self.rest().starts_with(mark)) {
            self.take_while(|c| c != '\n');
        }
    }

    /// `{m}`, `{m,}`, `{,n}` or `{m,n}`, behind the brace.
    pub(crate) fn counts(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        let min = self.number()?;
        self.space(&[]);
        let counts = if self.eat(",") {
            self.space(&[]);
            (min.unwrap_or(0), self.number()?)
        } else {
            let min = min.ok_or_else(|| self.unexpected("a number"))?;
            (min, Some(min))
        };
        self.space(&[]);
        self.expect("}")?;
        self.checked(counts)
    }
    /// A number if one is next, with the space before it.
    pub(crate) fn number(&mut self) -> Result<Option<u32>, GrammarError> {
        self.space(&[]);
        match self.take_while(|c| c.is_ascii_digit()) {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| self.invalid("a count is too large")),
        }
    }
    pub(crate) fn checked(
        &self,
        counts: (u32, Option<u32>),
    ) -> Result<(u32, Option<u32>), GrammarError> {
        match counts {
            (min, Some(max)) if min > max => Err(self.invalid("a count's bounds are reversed")),
            counts => Ok(counts),
        }
    }

    /// What a backslash was before; `own` are letters of one notation.
    pub(crate) fn escape(&mut self, own: &[(char, char)]) -> Result<char, GrammarError> {
        let at = self.at;
        let next = self.next();
        let is_next = |letter: &&(char, char)| next == Some(letter.0);
        match next {
            Some('x') => self.hex(2),
            Some('u') => self.hex(4),
            Some('U') => self.hex(8),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('n') => Ok('\n'),
            Some(c) if c.is_ascii_punctuation() => Ok(c),
            _ => own.iter().find(is_next).map(|letter| letter.1).ok_or_else(|| {
                self.at = at;
                self.unexpected("an escaped character")
            }),
        }
    }
    /// A character by its number, `digits` hexadecimal ones.
    pub(crate) fn hex(&mut self, digits: usize) -> Result<char, GrammarError> {
        let number = self.rest().get(..digits).filter(|n| n.bytes().all(|b| b.is_ascii_hexdigit()));
        let number = number.and_then(|n| u32::from_str_radix(n, 16).ok());
        let number =
            number.ok_or_else(|| self.unexpected(&format!("{digits} hexadecimal digits")))?;
        let c = char::from_u32(number)
            .ok_or_else(|| self.invalid(format!("U+{number:04X} is not a character")))?;
        self.at += digits;
        Ok(c)
    }

    /// `part` repeated, at a depth of nesting.
    pub(crate) fn repeat(
        &self,
        part: Expr,
        (min, max): (u32, Option<u32>),
        depth: usize,
    ) -> Result<Expr, GrammarError> {
        self.check_depth(depth)?;
        Ok(Expr::Repeat { part: Box::new(part), min, max })
    }
    pub(crate) fn check_depth(&self, depth: usize) -> Result<(), GrammarError> {
        if depth <= MAX_NESTING {
            return Ok(());
        }
        Err(self.invalid(format!("parts are nested deeper than {MAX_NESTING}")))
    }

    pub(crate) fn invalid(&self, message: impl Into<String>) -> GrammarError {
        GrammarError::invalid(message, &self.place(self.at))
    }
    pub(crate) fn unsupported(&self, name: impl Into<String>) -> GrammarError {
        GrammarError::unsupported(name, &self.place(self.at))
    }
    pub(crate) fn unexpected(&self, wanted: &str) -> GrammarError {
        let found = match self.peek() {
            Some(c) => format!("`{}`", c.escape_debug()),
            None => "the end".to_owned(),
        };
        self.invalid(format!("expected {wanted}, found {found}"))
    }
}
