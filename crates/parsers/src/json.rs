//! JSON as it comes in, a character at a time: where a value ends, and what a string says. What is
//! inside is not judged; a client must check arguments in any case.

use crate::limits::MAX_DEPTH;

/// What a character was to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Part of it.
    Inside,
    /// Its last character.
    Last,
    /// Behind its last character.
    Behind,
    /// Nothing that it can hold there.
    Broken,
}

/// Finds the end of one value, from its first character on.
#[derive(Debug, Default)]
pub struct ValueSpan {
    /// The kinds of the open brackets, innermost lowest: 1 is a brace.
    kinds: u64,
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    in_scalar: bool,
}

impl ValueSpan {
    /// Takes a character of the value, or the one behind a number or a word.
    pub fn push(&mut self, c: char) -> Span {
        if self.in_string {
            return self.push_string(c);
        }
        if self.in_scalar {
            return if ends_scalar(c) { Span::Behind } else { Span::Inside };
        }
        match c {
            '"' => self.in_string = true,
            '{' | '[' if self.depth == MAX_DEPTH => return Span::Broken,
            '{' | '[' => {
                self.kinds = self.kinds << 1 | u64::from(c == '{');
                self.depth += 1;
            }
            '}' | ']' => return self.close(c == '}'),
            _ if self.depth == 0 => self.in_scalar = true,
            _ => {}
        }
        Span::Inside
    }

    fn push_string(&mut self, c: char) -> Span {
        match c {
            _ if self.is_escaped => self.is_escaped = false,
            '\\' => self.is_escaped = true,
            '"' => {
                self.in_string = false;
                return if self.depth == 0 { Span::Last } else { Span::Inside };
            }
            _ => {}
        }
        Span::Inside
    }

    fn close(&mut self, is_brace: bool) -> Span {
        if self.depth == 0 || (self.kinds & 1 == 1) != is_brace {
            return Span::Broken;
        }
        self.kinds >>= 1;
        self.depth -= 1;
        if self.depth == 0 { Span::Last } else { Span::Inside }
    }
}

fn ends_scalar(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | '}' | ']' | ':' | ';')
}

/// The text of a JSON string that comes without its quotes.
#[derive(Debug, Default)]
pub struct StringText {
    escape: String,
    /// The first half of a character that is written as two escapes.
    high: Option<u16>,
}

impl StringText {
    /// Appends to `out` what `c` completes; `false` if it was the closing quote.
    pub fn push(&mut self, c: char, out: &mut String) -> bool {
        if !self.escape.is_empty() {
            self.escape.push(c);
            self.end_escape(out);
        } else if c == '\\' {
            self.escape.push(c);
        } else {
            self.end_pair(out);
            if c == '"' {
                return false;
            }
            out.push(c);
        }
        true
    }

    fn end_escape(&mut self, out: &mut String) {
        let code = match self.escape.as_bytes()[1] {
            b'u' if self.escape.len() < 6 => return,
            b'u' => u16::from_str_radix(&self.escape[2..], 16).ok(),
            _ => None,
        };
        let escape = std::mem::take(&mut self.escape);
        let Some(code) = code else {
            self.end_pair(out);
            out.push_str(&unescaped(&escape));
            return;
        };
        match (self.high.take(), code) {
            (Some(high), 0xdc00..0xe000) => {
                let pair = char::decode_utf16([high, code]).next().and_then(Result::ok);
                out.push(pair.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (lone, 0xd800..0xdc00) => {
                out.extend(lone.map(|_| char::REPLACEMENT_CHARACTER));
                self.high = Some(code);
            }
            (lone, code) => {
                out.extend(lone.map(|_| char::REPLACEMENT_CHARACTER));
                let c = char::from_u32(code.into());
                out.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// A first half without its second one.
    fn end_pair(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// What an escape of two characters says; one that JSON does not have stays as it is.
fn unescaped(escape: &str) -> String {
    match escape {
        r#"\""# => "\"".into(),
        r"\\" => "\\".into(),
        r"\/" => "/".into(),
        r"\b" => "\u{8}".into(),
        r"\f" => "\u{c}".into(),
        r"\n" => "\n".into(),
        r"\r" => "\r".into(),
        r"\t" => "\t".into(),
        other => other.into(),
    }
}

/// A character as a JSON string has it inside.
pub fn push_escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
        c => out.push(c),
    }
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    text.chars().for_each(|c| push_escaped(c, &mut out));
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(string: &str) -> String {
        let (mut text, mut out) = (StringText::default(), String::new());
        for c in string.chars().skip(1) {
            if !text.push(c, &mut out) {
                break;
            }
        }
        out
    }

    fn span_of(text: &str) -> Option<usize> {
        let mut span = ValueSpan::default();
        for (i, c) in text.char_indices() {
            match span.push(c) {
                Span::Inside => {}
                Span::Last => return Some(i + c.len_utf8()),
                Span::Behind => return Some(i),
                Span::Broken => return None,
            }
        }
        None
    }

    proptest! {
        #[test]
        fn strings_say_what_serde_reads(text in any::<String>(), json in r#""([a-z]|\\[nrtbf"/\\]|\\u[0-9a-f]{4}){0,12}""#) {
            prop_assert_eq!(text_of(&quoted(&text)), text.clone());
            prop_assert_eq!(serde_json::from_str::<String>(&quoted(&text)).unwrap(), text);
            if let Ok(read) = serde_json::from_str::<String>(&json) {
                prop_assert_eq!(text_of(&json), read, "{}", json);
            }
        }
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        for (text, end) in [
            (r#"{"a": "}\"", "b": [1, {}]} x"#, Some(26)),
            ("12, 3", Some(2)),
            (r#""a\\" b"#, Some(5)),
            ("[1, 2}", None),
            ("]", None),
            ("[1, 2", None),
        ] {
            assert_eq!(span_of(text), end, "{text}");
        }
        assert_eq!(span_of(&"[".repeat(100_000)), None);
    }
}
