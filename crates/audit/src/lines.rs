//! Lines of bounded length from a stream of any length.

use std::io::{self, BufRead};

/// One line, without its line break.
pub enum Line<'a> {
    /// As text; bytes that are not UTF-8 are replaced.
    Whole(&'a str),
    /// Longer than the bound; it was passed over.
    TooLong,
}

/// Reads line by line into one buffer.
pub struct Lines<R> {
    input: R,
    max: usize,
    bytes: Vec<u8>,
    text: String,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R, max: usize) -> Lines<R> {
        Lines { input, max, bytes: Vec::new(), text: String::new() }
    }

    /// The next line; none at the end.
    ///
    /// # Errors
    /// Of the input.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.bytes.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let available = match self.input.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                break;
            }
            any = true;
            let end = available.iter().position(|b| *b == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            too_long |= self.bytes.len() + part.len() > self.max;
            if !too_long {
                self.bytes.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        if too_long {
            return Ok(Some(Line::TooLong));
        }
        if self.bytes.last() == Some(&b'\r') {
            self.bytes.pop();
        }
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.bytes));
        Ok(Some(Line::Whole(&self.text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_passed_over() {
        let text = b"short\r\n0123456789\n\nlast";
        let mut lines = Lines::new(io::BufReader::with_capacity(3, &text[..]), 6);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().expect("memory can be read") {
            seen.push(match line {
                Line::Whole(text) => text.to_owned(),
                Line::TooLong => "(too long)".to_owned(),
            });
        }
        assert_eq!(seen, ["short", "(too long)", "", "last"]);
    }
}
