//! Text to token ids: through our own tokenizer if it supports all that the file asks for,
//! otherwise through the HF `tokenizers` crate.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use saccade_tokenizer::{
    CacheCounters, LoadError, Options, PromptCache, Tokenizer as OwnTokenizer,
};
use tokenizers::Tokenizer;

use super::pool::Crew;
use super::vocab::{UnsupportedDecoder, Vocab};
use crate::limits::BYTES_PER_HELPER;

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is missing or is not a tokenizer.
    #[error("{path}: {reason}")]
    Load {
        /// The file.
        path: String,
        /// What the parser said.
        reason: String,
    },
    /// The decoder cannot be streamed exactly.
    #[error(transparent)]
    Decoder(#[from] UnsupportedDecoder),
}

/// Which tokenizer encodes.
enum Encoder {
    Own(Box<OwnTokenizer>),
    Hf(Box<Tokenizer>),
}

/// A tokenizer with its pieces taken out for decoding.
pub struct TextTokenizer {
    encoder: Encoder,
    vocab: Arc<Vocab>,
    /// Absent: nothing is kept.
    cache: Option<PromptCache>,
}

/// How to encode a prompt. Only `add_special_tokens` changes the ids.
#[derive(Clone, Copy)]
pub struct EncodeParams<'a> {
    /// With the tokens that the tokenizer puts around a text.
    pub add_special_tokens: bool,
    /// The request's; cached ids are found only by requests with the same one.
    pub cache_salt: u64,
    /// Threads that may help with a long text.
    pub crew: &'a Crew,
}

impl TextTokenizer {
    /// Loads tokenizer.json.
    ///
    /// # Errors
    /// If the file cannot be read or parsed, or its decoder is of no supported family.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let error = |reason: String| {
            let path = path.display().to_string();
            TokenizerError::Load { path, reason }
        };
        let text = std::fs::read_to_string(path).map_err(|e| error(e.to_string()))?;
        match OwnTokenizer::from_json(&text) {
            Ok(own) => Ok(Self::of_own(own)),
            // HF has the last word, about broken files too: its messages are known.
            Err(reason) => {
                let slower = matches!(reason, LoadError::Unsupported { .. } | LoadError::Bounds(_));
                if slower {
                    tracing::warn!("prompts are encoded by HF tokenizers, slowly: {reason}");
                }
                Ok(Self::new(text.parse().map_err(|e: tokenizers::Error| error(e.to_string()))?)?)
            }
        }
    }

    fn of_own(own: OwnTokenizer) -> Self {
        let vocab = Arc::new(Vocab::of_pieces(own.pieces()));
        Self { encoder: Encoder::Own(Box::new(own)), vocab, cache: None }
    }

    /// Takes an HF tokenizer that is already loaded.
    ///
    /// # Errors
    /// If its decoder is of no supported family.
    pub fn new(mut tokenizer: Tokenizer) -> Result<Self, UnsupportedDecoder> {
        // A prompt is cut or padded by the request's own parameters, never behind its back.
        let _ = tokenizer.with_truncation(None);
        tokenizer.with_padding(None);
        let vocab = Arc::new(Vocab::of(&tokenizer)?);
        Ok(Self { encoder: Encoder::Hf(Box::new(tokenizer)), vocab, cache: None })
    }

    /// Caches the ids of repeated texts in at most `max_bytes` bytes; 0: no cache. Only our own
    /// tokenizer knows where texts can be cut.
    pub fn with_cache(mut self, max_bytes: usize) -> Self {
        let is_own = matches!(self.encoder, Encoder::Own(_));
        self.cache = (is_own && max_bytes > 0).then(|| PromptCache::new(max_bytes));
        self
    }

    /// What the cache has done so far.
    pub fn cache_counters(&self) -> CacheCounters {
        self.cache.as_ref().map(PromptCache::counters).unwrap_or_default()
    }

    /// Pieces for decoding.
    pub fn vocab(&self) -> &Arc<Vocab> {
        &self.vocab
    }

    /// Ids of `text`. Takes up to 1 µs per token: not for the reactor's threads. A long text is
    /// shared with the crew's idle threads.
    ///
    /// # Errors
    /// What the tokenizer's model says about text that it cannot represent.
    pub fn encode(&self, text: &str, params: EncodeParams<'_>) -> Result<Vec<u32>, String> {
        match &self.encoder {
            Encoder::Own(own) => {
                let helpers = params.crew.help(text.len() / BYTES_PER_HELPER);
                let cache = self.cache.as_ref().map(|cache| (cache, params.cache_salt));
                let (add_special, threads) = (params.add_special_tokens, helpers.threads());
                Ok(own.encode_with(text, Options { add_special, threads, cache }))
            }
            Encoder::Hf(hf) => {
                let encoding = hf.encode_fast(text, params.add_special_tokens);
                encoding.map(|e| e.get_ids().to_vec()).map_err(|e| e.to_string())
            }
        }
    }

    /// Ids of a text in the middle of an answer; none where the tokenizer cannot be asked for them.
    pub fn encode_continued(&self, text: &str) -> Vec<u32> {
        match &self.encoder {
            Encoder::Own(own) => own.encode_continued(text),
            Encoder::Hf(_) => Vec::new(),
        }
    }

    /// Where special tokens are written in `text`; none where that cannot be told, see
    /// [`can_tell_specials`](Self::can_tell_specials).
    pub fn specials_in(&self, text: &str) -> Vec<Range<usize>> {
        match &self.encoder {
            Encoder::Own(own) => own.specials_in(text).unwrap_or_default(),
            Encoder::Hf(_) => Vec::new(),
        }
    }

    /// Whether special tokens that a message has written can be kept text.
    pub fn can_tell_specials(&self) -> bool {
        matches!(&self.encoder, Encoder::Own(own) if own.specials_in("").is_some())
    }

    /// As [`encode`](Self::encode) for text whose special tokens at `breaks` are text.
    fn encode_broken(
        &self,
        text: &str,
        breaks: &[usize],
        params: EncodeParams<'_>,
    ) -> Result<Vec<u32>, String> {
        match &self.encoder {
            Encoder::Own(own) if !breaks.is_empty() => {
                Ok(own.encode_broken(text, breaks, params.add_special_tokens))
            }
            _ => self.encode(text, params),
        }
    }

    /// Ids of a rendered conversation: a template that writes the beginning-of-sequence token and
    /// a tokenizer that adds it must not give two. Special tokens at `breaks` are text.
    ///
    /// # Errors
    /// As [`TextTokenizer::encode`].
    pub fn encode_chat(
        &self,
        text: &str,
        breaks: &[usize],
        params: EncodeParams<'_>,
        bos: Option<&str>,
    ) -> Result<Vec<u32>, String> {
        let mut ids = self.encode_broken(text, breaks, params)?;
        if let [first, second, ..] = ids[..]
            && first == second
            && bos.is_some()
            && self.token_str(first).as_deref() == bos
        {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// The tokenizer's own strings for ids, for `/tokenize`.
    pub fn token_strs(&self, ids: &[u32]) -> Vec<String> {
        ids.iter().map(|&id| self.token_str(id).unwrap_or_default()).collect()
    }

    fn token_str(&self, id: u32) -> Option<String> {
        match &self.encoder {
            Encoder::Own(own) => own.pieces().string(id),
            Encoder::Hf(hf) => hf.id_to_token(id),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/common/tiny_tokenizer.rs"]
mod tiny_tokenizer;

/// Tiny tokenizers of both families, for unit tests.
#[cfg(test)]
pub mod tests_support {
    use super::tiny_tokenizer;
    use tokenizers::Tokenizer;

    /// See [`tiny_tokenizer::byte_level_json`].
    pub fn byte_level() -> Tokenizer {
        tiny_tokenizer::byte_level_json().to_string().parse().unwrap()
    }

    /// See [`tiny_tokenizer::byte_fallback_json`].
    pub fn byte_fallback() -> Tokenizer {
        tiny_tokenizer::byte_fallback_json().to_string().parse().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::WorkPool;
    use super::*;
    use std::path::PathBuf;

    fn bundled() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/saccade-tiny/tokenizer.json")
    }

    /// Both encoders on one file are one tokenizer to the rest of the frontend.
    fn both(json: &str) -> (TextTokenizer, TextTokenizer) {
        let own = TextTokenizer::of_own(OwnTokenizer::from_json(json).unwrap());
        (own, TextTokenizer::new(json.parse().unwrap()).unwrap())
    }

    fn agree(json: &str) {
        let (own, hf) = both(json);
        assert!(matches!(own.encoder, Encoder::Own(_)));
        for text in ["", "the end<|im_end|> a b  x", " \u{2581}thé é\n\n123", "中文 👍🏽 <s>the"]
        {
            let crew = WorkPool::start("test", 1, 1, 0).unwrap().crew();
            let params = EncodeParams { add_special_tokens: true, cache_salt: 0, crew: &crew };
            let ids = own.encode(text, params).unwrap();
            assert_eq!(ids, hf.encode(text, params).unwrap(), "{text}");
            assert_eq!(own.token_strs(&ids), hf.token_strs(&ids));
        }
        for id in 0..5_000 {
            assert_eq!(own.vocab.piece(id), hf.vocab.piece(id), "{id}");
            assert_eq!(own.vocab.is_special(id), hf.vocab.is_special(id), "{id}");
            assert_eq!(own.vocab.is_known(id), hf.vocab.is_known(id), "{id}");
        }
    }

    #[test]
    fn our_tokenizer_and_hf_are_one_to_the_frontend() {
        agree(&std::fs::read_to_string(bundled()).unwrap());
        agree(&tiny_tokenizer::byte_level_json().to_string());
        agree(&tiny_tokenizer::byte_fallback_json().to_string());
    }

    #[test]
    fn the_bundled_file_is_read_by_ours_and_others_by_hf() {
        let loaded = TextTokenizer::load(&bundled()).unwrap();
        assert!(matches!(loaded.encoder, Encoder::Own(_)));
        let mut other = tiny_tokenizer::byte_level_json();
        other["normalizer"] = serde_json::json!({"type": "NFKC"});
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, other.to_string()).unwrap();
        let loaded = TextTokenizer::load(&path).unwrap();
        assert!(matches!(loaded.encoder, Encoder::Hf(_)));
    }

    #[test]
    fn long_and_repeated_prompts_have_the_same_ids_under_every_salt() {
        let plain = TextTokenizer::load(&bundled()).unwrap();
        let cached = TextTokenizer::load(&bundled()).unwrap().with_cache(64 << 20);
        let crew = WorkPool::start("test", 4, 1, 0).unwrap().crew();
        let text = "<|im_start|>user\nwords between letters, and more.<|im_end|>\n".repeat(9)
            + &"a long text of words between letters ".repeat(40_000);
        let params =
            |cache_salt| EncodeParams { add_special_tokens: true, cache_salt, crew: &crew };
        let expected = plain.encode(&text, params(0)).unwrap();
        for (salt, misses) in [(0, 1), (0, 1), (7, 2), (7, 2)] {
            assert!(cached.encode(&text, params(salt)).unwrap() == expected, "salt {salt}");
            assert_eq!(cached.cache_counters().misses, misses);
        }
        assert_eq!(cached.cache_counters().hits, 2);
        assert_eq!(plain.cache_counters(), CacheCounters::default());
    }
}
