//! Text to token ids: through our own tokenizer where it knows all that the file asks for, else
//! through the HF `tokenizers` crate.

use std::path::Path;
use std::sync::Arc;

use saccade_tokenizer::{LoadError, Tokenizer as OwnTokenizer};
use tokenizers::Tokenizer;

use super::vocab::{UnsupportedDecoder, Vocab};

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is missing or is no tokenizer.
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

/// Who encodes.
enum Encoder {
    Own(Box<OwnTokenizer>),
    Hf(Box<Tokenizer>),
}

/// A tokenizer with its pieces taken out for decoding.
pub struct TextTokenizer {
    encoder: Encoder,
    vocab: Arc<Vocab>,
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
        Self { encoder: Encoder::Own(Box::new(own)), vocab }
    }

    /// Takes an HF tokenizer that is already there.
    ///
    /// # Errors
    /// If its decoder is of no supported family.
    pub fn new(mut tokenizer: Tokenizer) -> Result<Self, UnsupportedDecoder> {
        // A prompt is cut or padded by the request's own parameters, never behind its back.
        let _ = tokenizer.with_truncation(None);
        tokenizer.with_padding(None);
        let vocab = Arc::new(Vocab::of(&tokenizer)?);
        Ok(Self { encoder: Encoder::Hf(Box::new(tokenizer)), vocab })
    }

    /// Pieces for decoding.
    pub fn vocab(&self) -> &Arc<Vocab> {
        &self.vocab
    }

    /// Ids of `text`. Takes up to 1 µs per token: not for the reactor's threads.
    ///
    /// # Errors
    /// What the tokenizer's model says about text that it cannot represent.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, String> {
        match &self.encoder {
            Encoder::Own(own) => Ok(own.encode(text, add_special_tokens)),
            Encoder::Hf(hf) => {
                let encoding = hf.encode_fast(text, add_special_tokens);
                encoding.map(|e| e.get_ids().to_vec()).map_err(|e| e.to_string())
            }
        }
    }

    /// Ids of a rendered conversation: a template that writes the beginning-of-sequence token and
    /// a tokenizer that adds it must not give two.
    ///
    /// # Errors
    /// As [`TextTokenizer::encode`].
    pub fn encode_chat(
        &self,
        text: &str,
        add_special_tokens: bool,
        bos: Option<&str>,
    ) -> Result<Vec<u32>, String> {
        let mut ids = self.encode(text, add_special_tokens)?;
        if let [first, second, ..] = ids[..]
            && first == second
            && bos.is_some()
            && self.token_str(first).as_deref() == bos
        {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// The tokenizer's own strings of ids, for `/tokenize`.
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
            let ids = own.encode(text, true).unwrap();
            assert_eq!(ids, hf.encode(text, true).unwrap(), "{text}");
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
}
