//! Bytes to text, as they come.

/// Decodes a stream of bytes exactly like [`String::from_utf8_lossy`] decodes the whole: complete
/// characters go out at once, an unfinished one (at most 3 bytes) is held back.
#[derive(Debug, Default, Clone)]
pub struct LossyUtf8 {
    held: [u8; 4],
    held_len: u8,
}

impl LossyUtf8 {
    /// Appends to `out` what `bytes` completes.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while self.held_len > 0 && !bytes.is_empty() {
            let len = usize::from(self.held_len);
            self.held[len] = bytes[0];
            match std::str::from_utf8(&self.held[..=len]) {
                Ok(text) => {
                    out.push_str(text);
                    self.held_len = 0;
                    bytes = &bytes[1..];
                }
                Err(e) if e.error_len().is_none() => {
                    self.held_len += 1;
                    bytes = &bytes[1..];
                }
                // What was held can no longer become a character; the new byte starts over.
                Err(_) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    self.held_len = 0;
                }
            }
        }
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let last = chunks.peek().is_none();
            if last && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none()) {
                self.held[..invalid.len()].copy_from_slice(invalid);
                self.held_len = invalid.len() as u8;
            } else if !invalid.is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// The end of the stream: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if std::mem::take(&mut self.held_len) > 0 {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that meet the borders of UTF-8: leads, continuations, surrogates, overlongs.
    fn hard_byte() -> impl Strategy<Value = u8> {
        prop_oneof![
            prop::sample::select(&b"a\x7f\x80\x9f\xa0\xbf\xc0\xc2\xe0\xed\xef\xf0\xf4\xf5\xff"[..]),
            any::<u8>()
        ]
    }

    proptest! {
        #[test]
        fn any_split_decodes_like_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(hard_byte(), 0..5), 0..40)
        ) {
            let (mut stream, mut out) = (LossyUtf8::default(), String::new());
            for piece in &pieces {
                stream.push(piece, &mut out);
            }
            stream.finish(&mut out);
            prop_assert_eq!(out, String::from_utf8_lossy(&pieces.concat()).into_owned());
        }
    }
}
