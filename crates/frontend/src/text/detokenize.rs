//! Token ids to text, one at a time, exactly as HF would decode the whole sequence.

use std::sync::Arc;

use super::bytes::LossyUtf8;
use super::vocab::{Scheme, Vocab};

/// The text of one sequence as it grows. What was handed out is never taken back and never holds a
/// broken character; at most 3 bytes (byte-level) or one run of single-byte tokens (byte-fallback,
/// where a later byte decides about the whole run) are held back.
#[derive(Clone)]
pub struct Detokenizer {
    vocab: Arc<Vocab>,
    skip_special: bool,
    /// Special tokens that leave text nevertheless.
    kept: Arc<[u32]>,
    utf8: LossyUtf8,
    run: Vec<u8>,
    strip: usize,
}

impl Detokenizer {
    /// For tokens that follow a prompt: spaces at the start are part of the text.
    pub fn after_prompt(vocab: Arc<Vocab>, skip_special: bool) -> Self {
        Self {
            vocab,
            skip_special,
            kept: Arc::default(),
            utf8: LossyUtf8::default(),
            run: Vec::new(),
            strip: 0,
        }
    }

    /// The special tokens `ids` leave text whatever `skip_special` says: few.
    pub fn keeping(self, ids: Arc<[u32]>) -> Self {
        Self { kept: ids, ..self }
    }

    fn is_skipped(&self, id: u32) -> bool {
        self.skip_special && self.vocab.is_special(id) && !self.kept.contains(&id)
    }

    /// For tokens that begin a text.
    pub fn at_start(vocab: Arc<Vocab>, skip_special: bool) -> Self {
        let strip = match vocab.scheme {
            Scheme::ByteLevel => 0,
            Scheme::ByteFallback { strip_start } => strip_start,
        };
        Self { strip, ..Self::after_prompt(vocab, skip_special) }
    }

    /// Appends to `out` the text that `id` completes.
    pub fn push(&mut self, id: u32, out: &mut String) {
        if !self.vocab.is_known(id) || self.is_skipped(id) {
            return;
        }
        let vocab = self.vocab.clone();
        let piece = vocab.piece(id);
        match vocab.scheme {
            Scheme::ByteLevel => self.utf8.push(piece, out),
            Scheme::ByteFallback { .. } if vocab.is_byte(id) => self.run.extend_from_slice(piece),
            Scheme::ByteFallback { .. } => {
                self.end_run(out);
                self.push_text(&String::from_utf8_lossy(piece), out);
            }
        }
    }

    /// The end: what is still held back, as U+FFFD where it is no text.
    pub fn finish(&mut self, out: &mut String) {
        self.end_run(out);
        self.utf8.finish(out);
    }

    fn end_run(&mut self, out: &mut String) {
        if self.run.is_empty() {
            return;
        }
        let run = std::mem::take(&mut self.run);
        match String::from_utf8(run) {
            Ok(text) => self.push_text(&text, out),
            Err(e) => {
                let broken = e.as_bytes().iter().map(|_| char::REPLACEMENT_CHARACTER);
                self.push_text(&broken.collect::<String>(), out);
            }
        }
    }

    fn push_text(&mut self, mut text: &str, out: &mut String) {
        while self.strip > 0 && !text.is_empty() {
            self.strip -= 1;
            match text.strip_prefix(' ') {
                Some(rest) => text = rest,
                None => self.strip = 0,
            }
        }
        out.push_str(text);
    }
}

/// The text of a whole sequence.
pub fn decode(vocab: &Arc<Vocab>, ids: &[u32], skip_special: bool) -> String {
    let mut detokenizer = Detokenizer::at_start(vocab.clone(), skip_special);
    let mut text = String::new();
    for &id in ids {
        detokenizer.push(id, &mut text);
    }
    detokenizer.finish(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::tests_support::{byte_fallback, byte_level};
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;
    use tokenizers::Tokenizer;

    static BYTE_LEVEL: LazyLock<Tokenizer> = LazyLock::new(byte_level);
    static BYTE_FALLBACK: LazyLock<Tokenizer> = LazyLock::new(byte_fallback);

    static BUNDLED: LazyLock<Tokenizer> = LazyLock::new(|| {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
        Tokenizer::from_file(format!("{models}/saccade-tiny/tokenizer.json")).unwrap()
    });

    fn agrees(tokenizer: &Tokenizer, ids: &[u32], skip: bool) -> Result<(), TestCaseError> {
        let vocab = Arc::new(Vocab::of(tokenizer).unwrap());
        let mut detokenizer = Detokenizer::at_start(vocab.clone(), skip);
        let mut text = String::new();
        for &id in ids {
            detokenizer.push(id, &mut text);
        }
        detokenizer.finish(&mut text);
        prop_assert_eq!(&text, &tokenizer.decode(ids, skip).unwrap());
        Ok(())
    }

    proptest! {
        #[test]
        fn byte_level_agrees_with_the_whole(
            ids in prop::collection::vec(0u32..300, 0..60), skip: bool
        ) {
            agrees(&BYTE_LEVEL, &ids, skip)?;
        }

        #[test]
        fn the_bundled_tokenizer_agrees_with_the_whole(
            ids in prop::collection::vec(0u32..4100, 0..60), skip: bool
        ) {
            agrees(&BUNDLED, &ids, skip)?;
        }

        #[test]
        fn byte_fallback_agrees_with_the_whole(
            ids in prop::collection::vec(0u32..280, 0..60), skip: bool
        ) {
            agrees(&BYTE_FALLBACK, &ids, skip)?;
        }
    }

    #[test]
    fn a_split_character_waits_for_its_last_byte() {
        let tokenizer = byte_level();
        let vocab = Arc::new(Vocab::of(&tokenizer).unwrap());
        let ids: Vec<u32> = tokenizer.encode("é", false).unwrap().get_ids().to_vec();
        assert_eq!(ids.len(), 2);
        let mut detokenizer = Detokenizer::after_prompt(vocab, true);
        let mut text = String::new();
        detokenizer.push(ids[0], &mut text);
        assert_eq!(text, "");
        detokenizer.push(ids[1], &mut text);
        assert_eq!(text, "é");
    }

    #[test]
    fn a_space_after_the_prompt_stays() {
        let tokenizer = byte_fallback();
        let vocab = Arc::new(Vocab::of(&tokenizer).unwrap());
        let id = tokenizer.token_to_id("▁the").unwrap();
        let mut text = String::new();
        Detokenizer::after_prompt(vocab.clone(), true).push(id, &mut text);
        assert_eq!(text, " the");
        assert_eq!(decode(&vocab, &[id], true), "the");
    }
}
