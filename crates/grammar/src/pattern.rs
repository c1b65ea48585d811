//! The dialect of patterns. JSON Schema's `pattern` is ECMA 262; what regex-syntax reads differs in
//! places. A pattern is rewritten so that both mean the same, or refused where they would not.

use std::iter::Peekable;
use std::str::Chars;

use crate::GrammarError;

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0B\x0C\r \u{a0}\u{feff}\p{Zs}\u{2028}\u{2029}";
const ANY: &str = r"[^\n\r\u{2028}\u{2029}]";

/// The same pattern for regex-syntax.
///
/// # Errors
/// Names a construct whose meaning differs.
pub(crate) fn normalize(pattern: &str) -> Result<String, GrammarError> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = rest.next() {
        match c {
            '\\' => escape(&mut rest, &mut out)?,
            '[' if in_class => out.push_str(r"\["),
            '[' => {
                in_class = true;
                out.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                if rest.peek() == Some(&']') {
                    // An empty class in ECMA, a literal bracket elsewhere.
                    return Err(GrammarError::unsupported("an empty class in a pattern", ""));
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Set operations of regex-syntax.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.peek() == Some(&'-') => {
                return Err(GrammarError::unsupported("`--` in a class of a pattern", ""));
            }
            '.' if !in_class => out.push_str(ANY),
            '(' if !in_class => {
                out.push('(');
                group(&mut rest)?;
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Behind an opening parenthesis: only plain and named groups; named ones lose their names.
fn group(rest: &mut Peekable<Chars<'_>>) -> Result<(), GrammarError> {
    if rest.next_if_eq(&'?').is_none() {
        return Ok(());
    }
    match rest.next() {
        Some(':') => Ok(()),
        Some('<') if rest.peek().is_some_and(|c| c.is_alphabetic() || *c == '_') => {
            rest.by_ref().find(|&c| c == '>');
            Ok(())
        }
        _ => Err(GrammarError::unsupported("`(?` but for groups in a pattern", "")),
    }
}

fn escape(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), GrammarError> {
    let Some(c) = rest.next() else {
        return Err(GrammarError::invalid("a pattern ends with a backslash", ""));
    };
    match c {
        'd' => push_class(out, "[", DIGIT),
        'D' => push_class(out, "[^", DIGIT),
        'w' => push_class(out, "[", WORD),
        'W' => push_class(out, "[^", WORD),
        's' => push_class(out, "[", SPACE),
        'S' => push_class(out, "[^", SPACE),
        'n' | 'r' | 't' | 'f' | 'v' | 'x' | 'u' | 'p' | 'P' => {
            out.push('\\');
            out.push(c);
        }
        '0' if !rest.peek().is_some_and(char::is_ascii_digit) => out.push_str(r"\x00"),
        c if c.is_ascii_punctuation() => {
            out.push('\\');
            out.push(c);
        }
        c => return Err(GrammarError::unsupported(format!("`\\{c}` in a pattern"), "")),
    }
    Ok(())
}

fn push_class(out: &mut String, open: &str, members: &str) {
    out.push_str(open);
    out.push_str(members);
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_else_is_rewritten_or_refused() {
        for (pattern, want) in [
            (r"\d+", "[0-9]+"),
            (r"[\d-]", "[[0-9]-]"),
            (r"a.b", r"a[^\n\r\u{2028}\u{2029}]b"),
            (r"[.[&]", r"[.\[\&]"),
            (r"(?<year>x)(?:y)", "(x)(y)"),
            (r"\/\-\.", r"\/\-\."),
        ] {
            assert_eq!(normalize(pattern).unwrap(), want);
        }
        for pattern in
            [r"(?=a)", r"(?i)a", r"\1", r"\bword", r"[]", r"[^]", r"a\", r"\cA", "(?<=a)b"]
        {
            assert!(normalize(pattern).is_err(), "{pattern}");
        }
    }
}
