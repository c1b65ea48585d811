//! Server-sent events out of a stream of bytes that is cut anywhere.
//!
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>, with
//! one liberty: an event that the end of the stream cuts off before its blank line is delivered,
//! because some servers leave out the last line end.

/// Longest event; a server that sends more is not streaming tokens.
pub(crate) const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

/// An event grew beyond [`MAX_EVENT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// An incremental parser. Fields other than `data` and `event` are ignored.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Bytes of the `event` field.
    name: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_cr: bool,
    past_first_line: bool,
}

impl Parser {
    /// Takes the next bytes and calls `event(name, data)` for each event that they complete.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut event: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), TooLong> {
        if let Some(first) = bytes.first() {
            let ends_the_pair = std::mem::take(&mut self.after_cr) && *first == b'\n';
            bytes = &bytes[usize::from(ends_the_pair)..];
        }
        while let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.line.extend_from_slice(&bytes[..end]);
            self.end_line(&mut event);
            let cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            match bytes.first() {
                Some(b'\n') if cr => bytes = &bytes[1..],
                None => self.after_cr = cr,
                Some(_) => {}
            }
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() + self.data.len() > MAX_EVENT_BYTES { Err(TooLong) } else { Ok(()) }
    }

    /// The stream ended: delivers what has no line end yet.
    pub(crate) fn finish(&mut self, mut event: impl FnMut(&[u8], &[u8])) {
        if !self.line.is_empty() {
            self.end_line(&mut event);
        }
        self.dispatch(&mut event);
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8], &[u8])) {
        let mut line = std::mem::take(&mut self.line);
        if !self.past_first_line {
            self.past_first_line = true;
            if line.starts_with(b"\xef\xbb\xbf") {
                line.drain(..3);
            }
        }
        if line.is_empty() {
            self.dispatch(event);
        } else {
            self.field(&line);
        }
        line.clear();
        self.line = line; // its capacity
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => value.clone_into(&mut self.name),
            _ => {} // also a comment: its name is empty
        }
    }

    fn dispatch(&mut self, event: &mut impl FnMut(&[u8], &[u8])) {
        if self.has_data {
            event(&self.name, &self.data);
        }
        self.data.clear();
        self.name.clear();
        self.has_data = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for piece in pieces {
            parser.feed(piece, |name, data| events.push((text(name), text(data)))).expect("short");
        }
        parser.finish(|name, data| events.push((text(name), text(data))));
        events
    }

    fn data(pieces: &[&[u8]]) -> Vec<String> {
        parse(pieces).into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn the_forms_that_servers_use() {
        assert_eq!(data(&[b"data: a\n\ndata:b\n\n"]), ["a", "b"]);
        assert_eq!(data(&[b"data: a\r\n\r\ndata: b\r\n\r\n"]), ["a", "b"]);
        assert_eq!(data(&[b"data: a\r\rdata: b\r\r"]), ["a", "b"]);
        assert_eq!(data(&[b"data: a\ndata: b\n\n"]), ["a\nb"]);
        assert_eq!(data(&[b": ping\n\n: ping\n\ndata: a\n\n"]), ["a"]);
        assert_eq!(data(&[b"\xef\xbb\xbfdata: a\n\n"]), ["a"]);
        assert_eq!(data(&[b"data\n\n"]), [""]);
        assert_eq!(data(&[b"data: [DONE]"]), ["[DONE]"]);
        assert_eq!(data(&[b"id: 4\nretry: 10\n\n"]), Vec::<String>::new());
        let named = parse(&[b"event: error\ndata: x\n\ndata: y\n\n"]);
        assert_eq!(named, [("error".into(), "x".into()), (String::new(), "y".into())]);
    }

    #[test]
    fn a_line_end_is_one_even_when_it_arrives_in_halves() {
        assert_eq!(data(&[b"data: a\r", b"\n", b"\ndata: b\r\n"]), ["a", "b"]);
        assert_eq!(data(&[b"data: a\r", b"", b"\n\r\ndata: b"]), ["a", "b"]);
        assert_eq!(data(&[b"data: a\r", b"\r", b"data: b"]), ["a", "b"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let results: Vec<_> = (0..9).map(|_| parser.feed(&piece, |_, _| ())).collect();
        assert_eq!(results.last(), Some(&Err(TooLong)));
        assert_eq!(results[0], Ok(()));
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            text in "(data: ?[a-z:]{0,4}|: c|event: e|)(\r\n|\n|\r)((data: ?[a-z ]{0,4}|)(\r\n|\n|\r)){0,8}",
            cuts in proptest::collection::vec(0usize..80, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(parse(&pieces), parse(&[bytes]));
        }
    }
}
