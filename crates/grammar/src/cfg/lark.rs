//! Lark's notation, as llguidance takes it: rules in lower case, terminals in upper case. A
//! statement ends with its line, but for lines that go on with `|` and within parentheses.

use super::ast::{Expr, Grammar, Names, Pattern};
use super::common;
use super::cursor::Cursor;
use crate::GrammarError;
use crate::regex::Options;

const COMMENTS: &[&str] = &["//", "#"];

pub(super) fn parse(text: &str) -> Result<Grammar, GrammarError> {
    let (cursor, names) = (Cursor::new(text), Names::default());
    let mut parser = Parser { cursor, names, ignored: Vec::new(), in_terminal: false };
    parser.cursor.space(COMMENTS);
    while parser.cursor.peek().is_some() {
        parser.statement()?;
        parser.cursor.blanks(COMMENTS);
        if parser.cursor.peek().is_some() && !parser.cursor.eat("\n") {
            return Err(parser.cursor.unexpected("the line's end"));
        }
        parser.cursor.space(COMMENTS);
    }
    let Parser { cursor, names, ignored, .. } = parser;
    names.finish(&cursor, "start", is_terminal, ignored)
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase())
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    names: Names,
    ignored: Vec<Expr>,
    /// What is read is a terminal.
    in_terminal: bool,
}

/// Statements.
impl<'a> Parser<'a> {
    fn statement(&mut self) -> Result<(), GrammarError> {
        if self.cursor.peek() == Some('%') {
            return self.directive();
        }
        // How a rule looks in a syntax tree.
        self.cursor.take_while(|c| c == '?' || c == '!');
        let at = self.cursor.at();
        let name = self.name("a rule's name")?;
        self.cursor.blanks(COMMENTS);
        match self.cursor.peek() {
            Some('.') => return Err(self.cursor.unsupported("a priority")),
            Some('{') => return Err(self.cursor.unsupported("a template")),
            Some('[') => return Err(self.cursor.unsupported("an option of a rule (`[…]`)")),
            _ => self.cursor.expect(":")?,
        }
        self.in_terminal = is_terminal(name);
        self.cursor.enter(name);
        let body = self.choice(0)?;
        self.cursor.enter("");
        self.names.define(&self.cursor, name, at, body)
    }

    /// A name, with dashes in it but not with the arrow behind it.
    fn name(&mut self, wanted: &str) -> Result<&'a str, GrammarError> {
        let rest = self.cursor.rest();
        let is_end = |(at, c): &(usize, char)| match c {
            '-' => rest[at + 1..].starts_with('>'),
            c => !c.is_ascii_alphanumeric() && *c != '_',
        };
        let len = rest.char_indices().find(is_end).map_or(rest.len(), |(at, _)| at);
        let name = &rest[..len];
        if !name.trim_start_matches('_').starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(self.cursor.unexpected(wanted));
        }
        self.cursor.back_to(self.cursor.at() + len);
        Ok(name)
    }
    fn terminal_name(&mut self) -> Result<&'a str, GrammarError> {
        let at = self.cursor.at();
        let name = self.name("a terminal's name")?;
        if is_terminal(name) {
            return Ok(name);
        }
        self.cursor.back_to(at);
        Err(self.cursor.unexpected("a terminal's name"))
    }

    fn directive(&mut self) -> Result<(), GrammarError> {
        let at = self.cursor.at();
        self.cursor.next();
        let name = self.cursor.take_while(|c| c.is_ascii_alphabetic());
        self.cursor.blanks(&[]);
        match name {
            "ignore" => {
                self.in_terminal = true;
                let ignored = self.choice(0)?;
                self.ignored.push(ignored);
                Ok(())
            }
            "import" => self.import(),
            _ => {
                self.cursor.back_to(at);
                Err(self.cursor.unsupported(format!("`%{name}`")))
            }
        }
    }

    /// `common.A`, `common.A -> B` or `common (A, B)`.
    fn import(&mut self) -> Result<(), GrammarError> {
        let at = self.cursor.at();
        if self.name("`common`")? != "common" {
            self.cursor.back_to(at);
            return Err(self.cursor.unsupported("`%import` of anything but `common`"));
        }
        if self.cursor.eat(".") {
            let (at, terminal) = (self.cursor.at(), self.terminal_name()?);
            self.cursor.blanks(&[]);
            let mut alias = terminal;
            if self.cursor.eat("->") {
                self.cursor.blanks(&[]);
                alias = self.terminal_name()?;
            }
            return self.define_common(alias, terminal, at);
        }
        self.cursor.blanks(&[]);
        self.cursor.expect("(")?;
        loop {
            self.cursor.space(COMMENTS);
            let (at, terminal) = (self.cursor.at(), self.terminal_name()?);
            self.define_common(terminal, terminal, at)?;
            self.cursor.space(COMMENTS);
            if self.cursor.eat(")") {
                return Ok(());
            }
            self.cursor.expect(",")?;
        }
    }

    fn define_common(&mut self, name: &str, terminal: &str, at: usize) -> Result<(), GrammarError> {
        let Some(text) = common::terminal(terminal) else {
            self.cursor.back_to(at);
            return Err(self.cursor.unsupported(format!("`common.{terminal}`")));
        };
        let text = text.to_owned();
        let pattern = Pattern { text, options: Options::default(), at };
        self.names.define(&self.cursor, name, at, Expr::Pattern(pattern))
    }
}

/// What statements consist of.
impl Parser<'_> {
    /// Goes to what comes next within a statement.
    fn space(&mut self, depth: usize) {
        if depth > 0 {
            return self.cursor.space(COMMENTS);
        }
        self.cursor.blanks(COMMENTS);
        let at = self.cursor.at();
        self.cursor.space(COMMENTS);
        if self.cursor.peek() != Some('|') {
            self.cursor.back_to(at);
        }
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
        self.space(depth);
        while let Some(part) = self.part(depth)? {
            self.space(depth);
            parts.push(self.repeated(part, depth)?);
        }
        if self.cursor.eat("->") {
            // The branch's name in a syntax tree.
            self.cursor.blanks(&[]);
            self.name("a branch's name")?;
            self.space(depth);
        }
        Ok(Expr::Sequence(parts))
    }

    /// The next part of a sequence, if it goes on.
    fn part(&mut self, depth: usize) -> Result<Option<Expr>, GrammarError> {
        let part = match self.cursor.peek() {
            None | Some('|' | ')' | ']' | '\n') => return Ok(None),
            Some('-') if self.cursor.rest().starts_with("->") => return Ok(None),
            Some('"' | '\'') => self.text_or_range()?,
            Some('/') => self.pattern()?,
            Some('(') => self.group(")", depth)?,
            Some('[') => {
                let inner = self.group("]", depth)?;
                self.cursor.repeat(inner, (0, Some(1)), depth + 1)?
            }
            Some('<') => return Err(self.cursor.unsupported("a token (`<…>`) in a grammar")),
            Some(operator @ ('~' | '&' | '@')) => {
                return Err(self.cursor.unsupported(format!("`{operator}` in a grammar")));
            }
            Some('%') => {
                let rest = &self.cursor.rest()[1..];
                let len = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                let name = format!("`%{}` in a rule", &rest[..len]);
                return Err(self.cursor.unsupported(name));
            }
            Some(_) => self.reference()?,
        };
        Ok(Some(part))
    }

    fn group(&mut self, end: &str, depth: usize) -> Result<Expr, GrammarError> {
        self.cursor.next();
        let inner = self.choice(depth + 1)?;
        self.cursor.expect(end)?;
        Ok(inner)
    }

    fn reference(&mut self) -> Result<Expr, GrammarError> {
        let at = self.cursor.at();
        let name = self.name("a part of a rule")?;
        if self.in_terminal && !is_terminal(name) {
            self.cursor.back_to(at);
            let message = format!("a terminal cannot use the rule `{name}`");
            return Err(self.cursor.invalid(message));
        }
        Ok(Expr::Rule(self.names.number(name, at)))
    }

    /// A part with the counts behind it.
    fn repeated(&mut self, part: Expr, depth: usize) -> Result<Expr, GrammarError> {
        let (mut part, mut nested) = (part, depth);
        loop {
            let counts = match self.cursor.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{' | '~') => (0, Some(0)),
                _ => return Ok(part),
            };
            let counts = match self.cursor.next() {
                Some('{') => self.cursor.counts()?,
                Some('~') => self.range_of_counts()?,
                _ => counts,
            };
            nested += 1;
            part = self.cursor.repeat(part, counts, nested)?;
            self.space(depth);
        }
    }

    /// `n` or `m..n`.
    fn range_of_counts(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        let min = self.cursor.number()?.ok_or_else(|| self.cursor.unexpected("a number"))?;
        let before = self.cursor.at();
        self.cursor.blanks(&[]);
        if !self.cursor.eat("..") {
            self.cursor.back_to(before);
            return Ok((min, Some(min)));
        }
        let max = self.cursor.number()?.ok_or_else(|| self.cursor.unexpected("a number"))?;
        self.cursor.checked((min, Some(max)))
    }

    /// A text, with `i` behind it in any case; or two with dots between, a range of characters.
    fn text_or_range(&mut self) -> Result<Expr, GrammarError> {
        let at = self.cursor.at();
        let text = self.text()?;
        if self.cursor.eat("i") {
            let text = regex_syntax::escape(&text);
            let options = Options { ignores_case: true, ..Options::default() };
            let pattern = Pattern { text, options, at };
            return Ok(Expr::Pattern(pattern));
        }
        let behind = self.cursor.at();
        self.cursor.blanks(&[]);
        if !self.cursor.eat("..") {
            self.cursor.back_to(behind);
            return Ok(Expr::Text(text));
        }
        self.cursor.blanks(&[]);
        let high = self.text()?;
        let one = |text: &str| text.chars().next().filter(|c| c.len_utf8() == text.len());
        match (one(&text), one(&high)) {
            (Some(low), Some(high)) if low <= high => Ok(Expr::Chars(vec![(low, high)])),
            _ => Err(self.cursor.invalid("a range is from one character to a later one")),
        }
    }

    fn text(&mut self) -> Result<String, GrammarError> {
        let quote = match self.cursor.peek() {
            Some(quote @ ('"' | '\'')) => quote,
            _ => return Err(self.cursor.unexpected("a text")),
        };
        self.cursor.next();
        let mut text = String::new();
        loop {
            match self.cursor.peek() {
                None | Some('\n') => return Err(self.cursor.unexpected("a text's end")),
                Some(c) if c == quote => {
                    self.cursor.next();
                    return Ok(text);
                }
                Some('\\') => {
                    self.cursor.next();
                    text.push(self.cursor.escape(&[('f', '\u{c}')])?);
                }
                Some(c) => {
                    self.cursor.next();
                    text.push(c);
                }
            }
        }
    }

    /// A regular expression between slashes, with flags behind it.
    fn pattern(&mut self) -> Result<Expr, GrammarError> {
        let at = self.cursor.at();
        self.cursor.next();
        let mut text = String::new();
        while !self.cursor.eat("/") {
            match self.cursor.next() {
                None | Some('\n') => {
                    return Err(self.cursor.unexpected("a regular expression's end"));
                }
                Some('\\') if self.cursor.eat("/") => text.push('/'),
                Some('\\') => {
                    text.push('\\');
                    text.extend(self.cursor.next());
                }
                Some(c) => text.push(c),
            }
        }
        let mut pattern = Pattern { text, options: Options::default(), at };
        loop {
            match self.cursor.peek() {
                Some('i') => pattern.options.ignores_case = true,
                Some('s') => pattern.options.dot_is_any = true,
                Some(flag @ ('m' | 'l' | 'u' | 'x')) => {
                    let name = format!("the flag `{flag}` of a regular expression");
                    return Err(self.cursor.unsupported(name));
                }
                _ => return Ok(Expr::Pattern(pattern)),
            }
            self.cursor.next();
        }
    }
}
