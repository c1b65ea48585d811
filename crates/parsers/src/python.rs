//! Python literals as JSON.

use crate::json::quoted;
use crate::limits::MAX_DEPTH;

/// Reads Python text from its beginning.
pub struct Reader<'a> {
    rest: &'a str,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// A reader of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { rest: text, depth: 0 }
    }

    /// `name(key=value, …)`: the name, and the arguments as a JSON object.
    pub fn call(&mut self) -> Option<(&'a str, String)> {
        let name = self.dotted_name()?;
        let mut out = String::from("{");
        self.token('(')?;
        while !self.take(')') {
            if out.len() > 1 {
                out.push_str(", ");
            }
            let key = self.word()?;
            self.token('=')?;
            out.push_str(&quoted(key));
            out.push_str(": ");
            self.value(&mut out)?;
            if !self.take(',') && !self.rest.starts_with(')') {
                return None;
            }
        }
        out.push('}');
        Some((name, out))
    }

    /// One literal that is all there is.
    pub fn only_value(&mut self) -> Option<String> {
        let mut out = String::new();
        self.value(&mut out)?;
        self.rest.is_empty().then_some(out)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, c: char) -> bool {
        self.skip_space();
        let Some(rest) = self.rest.strip_prefix(c) else { return false };
        self.rest = rest;
        self.skip_space();
        true
    }

    fn token(&mut self, c: char) -> Option<()> {
        self.take(c).then_some(())
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> Option<&'a str> {
        self.skip_space();
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.skip_space();
        (!word.is_empty()).then_some(word)
    }

    fn word(&mut self) -> Option<&'a str> {
        let word = self.take_while(|c| c.is_alphanumeric() || c == '_')?;
        (!word.starts_with(|c: char| c.is_numeric())).then_some(word)
    }

    fn dotted_name(&mut self) -> Option<&'a str> {
        let name = self.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))?;
        (!name.starts_with(|c: char| c.is_numeric() || c == '.')).then_some(name)
    }

    fn value(&mut self, out: &mut String) -> Option<()> {
        self.skip_space();
        match self.rest.chars().next()? {
            '"' | '\'' => {
                out.push_str(&quoted(&self.strings()?));
                Some(())
            }
            '[' => self.list(']', out),
            '(' => self.list(')', out),
            '{' => self.dict(out),
            c if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => self.number(out),
            _ => {
                out.push_str(match self.word()? {
                    "True" | "true" => "true",
                    "False" | "false" => "false",
                    "None" | "null" => "null",
                    _ => return None,
                });
                Some(())
            }
        }
    }

    /// A string, or several that Python joins.
    fn strings(&mut self) -> Option<String> {
        let mut text = String::new();
        while let Some(quote @ ('"' | '\'')) = self.rest.chars().next() {
            self.string(quote, &mut text)?;
            self.skip_space();
        }
        Some(text)
    }

    fn string(&mut self, quote: char, text: &mut String) -> Option<()> {
        let mut chars = self.rest[1..].chars();
        loop {
            match chars.next()? {
                c if c == quote => break,
                '\\' => escape(&mut chars, text)?,
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(())
    }

    /// Only what JSON has as a number as well.
    fn number(&mut self, out: &mut String) -> Option<()> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
        let text = self.take_while(is_part)?;
        let text: String = text.trim_start_matches('+').chars().filter(|c| *c != '_').collect();
        let number = serde_json::from_str::<serde_json::Number>(&text).is_ok();
        number.then(|| out.push_str(&text))
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let value = if self.depth > MAX_DEPTH { None } else { read(self) };
        self.depth -= 1;
        value
    }

    fn list(&mut self, end: char, out: &mut String) -> Option<()> {
        self.rest = &self.rest[1..];
        self.deeper(|reader| {
            out.push('[');
            for i in 0.. {
                if reader.take(end) {
                    break;
                }
                out.push_str(if i == 0 { "" } else { ", " });
                reader.value(out)?;
                if !reader.take(',') && !reader.rest.starts_with(end) {
                    return None;
                }
            }
            out.push(']');
            Some(())
        })
    }

    fn dict(&mut self, out: &mut String) -> Option<()> {
        self.rest = &self.rest[1..];
        self.deeper(|reader| {
            out.push('{');
            for i in 0.. {
                if reader.take('}') {
                    break;
                }
                out.push_str(if i == 0 { "" } else { ", " });
                let has_key = reader.rest.starts_with(['"', '\'']);
                let key = has_key.then(|| reader.strings())??;
                out.push_str(&quoted(&key));
                reader.token(':')?;
                out.push_str(": ");
                reader.value(out)?;
                if !reader.take(',') && !reader.rest.starts_with('}') {
                    return None;
                }
            }
            out.push('}');
            Some(())
        })
    }
}

/// What comes behind a backslash.
fn escape(chars: &mut std::str::Chars, text: &mut String) -> Option<()> {
    let c = chars.next()?;
    let digits = match c {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => {
            push_simple_escape(c, text);
            return Some(());
        }
    };
    let hex = chars.as_str().get(..digits)?;
    let code = u32::from_str_radix(hex, 16).ok()?;
    text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    *chars = chars.as_str()[digits..].chars();
    Some(())
}

fn push_simple_escape(c: char, text: &mut String) {
    match c {
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'r' => text.push('\r'),
        'b' => text.push('\u{8}'),
        'f' => text.push('\u{c}'),
        '0' => text.push('\0'),
        '\n' => {}
        '\\' | '\'' | '"' => text.push(c),
        // Python keeps the backslash of an escape that it does not have.
        other => text.extend(['\\', other]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        for (python, json) in [
            ("'it\\'s'", r#""it's""#),
            (r#""a" 'b'"#, r#""ab""#),
            ("[1, -2.5e3, (3,), ]", "[1, -2.5e3, [3]]"),
            ("{'a': True, \"b\": None}", r#"{"a": true, "b": null}"#),
            ("'\\x41\\n'", r#""A\n""#),
            ("1_000", "1000"),
        ] {
            assert_eq!(Reader::new(python).only_value().as_deref(), Some(json), "{python}");
        }
        for python in ["", "a", "[1", "{1: 2}", "'", "1 2", "0x1f", "'\\u12'", "{'a' 1}"] {
            assert_eq!(Reader::new(python).only_value(), None, "{python}");
        }
        assert_eq!(Reader::new(&"[".repeat(100_000)).only_value(), None);
    }

    #[test]
    fn a_call_has_keys() {
        let call = |text| Reader::new(text).call();
        assert_eq!(call("f()"), Some(("f", "{}".into())));
        assert_eq!(call("a.b( x = 'y' , )"), Some(("a.b", r#"{"x": "y"}"#.into())));
        assert_eq!(call("f(1)"), None);
        assert_eq!(call("f(x=1 y=2)"), None);
    }
}
