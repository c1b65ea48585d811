//! Text to token ids, through the HF `tokenizers` crate.

use std::path::Path;
use std::sync::Arc;

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

/// A tokenizer with its pieces taken out for decoding.
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    vocab: Arc<Vocab>,
}

impl TextTokenizer {
    /// Loads tokenizer.json.
    ///
    /// # Errors
    /// If the file cannot be read or parsed, or its decoder is of no supported family.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let tokenizer = Tokenizer::from_file(path).map_err(|e| TokenizerError::Load {
            path: path.display().to_string(),
            reason: e.to_string(),
        })?;
        Ok(Self::new(tokenizer)?)
    }

    /// Takes a tokenizer that is already there.
    ///
    /// # Errors
    /// If its decoder is of no supported family.
    pub fn new(mut tokenizer: Tokenizer) -> Result<Self, UnsupportedDecoder> {
        // A prompt is cut or padded by the request's own parameters, never behind its back.
        let _ = tokenizer.with_truncation(None);
        tokenizer.with_padding(None);
        let vocab = Arc::new(Vocab::of(&tokenizer)?);
        Ok(Self { tokenizer, vocab })
    }

    /// Pieces for decoding.
    pub fn vocab(&self) -> &Arc<Vocab> {
        &self.vocab
    }

    /// Ids of `text`. Takes about 1 µs per token: not for the reactor's threads.
    ///
    /// # Errors
    /// What the tokenizer's model says about text that it cannot represent.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, String> {
        let encoding = self.tokenizer.encode_fast(text, add_special_tokens);
        encoding.map(|e| e.get_ids().to_vec()).map_err(|e| e.to_string())
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
        let bos_id = bos.and_then(|bos| self.tokenizer.token_to_id(bos));
        if let [first, second, ..] = ids[..]
            && first == second
            && Some(first) == bos_id
        {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// The tokenizer's own strings of ids, for `/tokenize`.
    pub fn token_strs(&self, ids: &[u32]) -> Vec<String> {
        ids.iter().map(|&id| self.tokenizer.id_to_token(id).unwrap_or_default()).collect()
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
