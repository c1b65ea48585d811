//! What the frontend knows of the model: how to read and write its tokens, and its defaults.

use std::path::{Path, PathBuf};

use saccade_model::{EmbeddingConfig, ModelFolder, OpenOptions, TokenizerConfig};

use super::answers::AnswerFormats;
use crate::config::FrontendConfig;
use crate::error::FrontendError;
use crate::text::pool::Crew;
use crate::text::template::{ChatTemplate, SpecialTokens};
use crate::text::tokenizer::{EncodeParams, TextTokenizer};

/// Largest `repetition_penalty` of the ring's descriptor.
const MAX_REPETITION_PENALTY: f32 = 10.0;
/// Largest chat template file.
const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

/// Sampling defaults of generation_config.json.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelDefaults {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Nucleus mass.
    pub top_p: Option<f32>,
    /// 0 is all.
    pub top_k: Option<u32>,
    /// Relative to the most likely token.
    pub min_p: Option<f32>,
    /// 1 is none.
    pub repetition_penalty: Option<f32>,
    /// Most tokens to produce, for requests that do not say.
    pub max_new_tokens: Option<u32>,
}

/// Tokenizer, template and defaults of the served model.
pub struct ModelAssets {
    /// Text to tokens and back.
    pub tokenizer: TextTokenizer,
    /// Absent: chat completions are refused with a reason.
    pub template: Option<ChatTemplate>,
    /// Defaults for what requests leave out.
    pub defaults: ModelDefaults,
    /// How answers to chats are taken apart.
    pub answers: AnswerFormats,
    /// Special tokens that are written in a message are text.
    pub escape_special_tokens: bool,
    /// Ids that end a sequence.
    pub eos_ids: Vec<u32>,
    /// How embeddings are made.
    pub embedding: EmbeddingConfig,
}

impl ModelAssets {
    /// Reads them from the model's folder and the files that the configuration names instead.
    ///
    /// # Errors
    /// Names the file that is missing or wrong.
    pub fn load(config: &FrontendConfig) -> Result<Self, FrontendError> {
        let options = OpenOptions {
            revision: config.revision.clone(),
            weights: false,
            ..OpenOptions::default()
        };
        let folder = ModelFolder::open(&config.model, &options)?;
        let tokenizer_path = tokenizer_path(&folder, config.tokenizer.as_deref())?;
        let texts = folder.tokenizer_config()?;
        let tokenizer = TextTokenizer::load(&tokenizer_path)?;
        warn_of_another_bos(&texts, &tokenizer);
        if config.escape_special_tokens && !tokenizer.can_tell_specials() {
            return Err(FrontendError::Config {
                field: "special_tokens_in_content",
                reason: format!(
                    "escape is not supported with {}: its special tokens cannot be told from text",
                    tokenizer_path.display()
                ),
            });
        }
        let template = template(&texts, config.chat_template.as_deref())?;
        Ok(Self {
            answers: AnswerFormats::of(config, template.as_ref(), tokenizer.vocab())?,
            escape_special_tokens: config.escape_special_tokens,
            tokenizer: tokenizer.with_cache(config.tokenizer_cache_bytes),
            template,
            defaults: if config.generation_config {
                defaults(&folder)?
            } else {
                ModelDefaults::default()
            },
            eos_ids: folder.config()?.eos_ids,
            embedding: folder.embedding_config()?,
        })
    }
}

/// The bytes of every token of a model's tokenizer, or of the one in `tokenizer`, for a device that
/// walks grammars.
///
/// # Errors
/// Names the file that is missing or wrong.
pub fn token_bytes(
    folder: &ModelFolder,
    tokenizer: Option<&Path>,
    vocab_size: u32,
) -> Result<saccade_grammar::Vocabulary, FrontendError> {
    let tokenizer = TextTokenizer::load(&tokenizer_path(folder, tokenizer)?)?;
    Ok(tokenizer.vocab().token_bytes(vocab_size))
}

/// Two files say whether a text begins with the beginning-of-sequence token. Here tokenizer.json
/// decides, as for every loader that reads it alone; some of HF's classes follow the other one.
fn warn_of_another_bos(texts: &TokenizerConfig, tokenizer: &TextTokenizer) {
    let (Some(wanted), Some(bos)) = (texts.add_bos_token, &texts.bos_token) else { return };
    let crew = Crew::default();
    let params = EncodeParams { add_special_tokens: true, cache_salt: 0, crew: &crew };
    let Ok(ids) = tokenizer.encode("a", params) else { return };
    let added = tokenizer.token_strs(&ids).first() == Some(bos);
    if added != wanted {
        tracing::warn!(
            "tokenizer_config.json says add_bos_token={wanted}, but tokenizer.json {} {bos}: \
             tokenizer.json is followed",
            if added { "adds" } else { "does not add" },
        );
    }
}

fn tokenizer_path(folder: &ModelFolder, given: Option<&Path>) -> Result<PathBuf, FrontendError> {
    let path = match given {
        Some(path) if path.is_dir() => Some(path.join("tokenizer.json")),
        Some(path) => Some(path.to_owned()),
        None => folder.tokenizer_path(),
    };
    path.filter(|p| p.is_file()).ok_or_else(|| FrontendError::File {
        path: given.unwrap_or(folder.root()).display().to_string(),
        reason: "has no tokenizer.json".into(),
    })
}

fn template(
    texts: &TokenizerConfig,
    file: Option<&Path>,
) -> Result<Option<ChatTemplate>, FrontendError> {
    let (origin, text) = match file {
        Some(path) => (path.display().to_string(), Some(read_template(path)?)),
        None => ("the model's chat template".into(), texts.template(None).map(str::to_owned)),
    };
    let tokens = SpecialTokens {
        bos: texts.bos_token.clone(),
        eos: texts.eos_token.clone(),
        pad: texts.pad_token.clone(),
        unk: texts.unk_token.clone(),
    };
    text.map(|text| ChatTemplate::new(&text, tokens))
        .transpose()
        .map_err(|e| FrontendError::File { path: origin, reason: e.to_string() })
}

fn read_template(path: &Path) -> Result<String, FrontendError> {
    let file = |reason: String| FrontendError::File { path: path.display().to_string(), reason };
    let bytes = std::fs::metadata(path).map_err(|e| file(e.to_string()))?.len();
    if bytes > MAX_TEMPLATE_BYTES {
        return Err(file(format!("has {bytes} bytes, must have at most {MAX_TEMPLATE_BYTES}")));
    }
    std::fs::read_to_string(path).map_err(|e| file(e.to_string()))
}

fn defaults(folder: &ModelFolder) -> Result<ModelDefaults, FrontendError> {
    let generation = folder.generation_config()?;
    if let Some(penalty) = generation.repetition_penalty.filter(|p| *p > MAX_REPETITION_PENALTY) {
        return Err(FrontendError::File {
            path: "generation_config.json".into(),
            reason: format!(
                "repetition_penalty must be at most {MAX_REPETITION_PENALTY}, got {penalty}"
            ),
        });
    }
    if !generation.ignored.is_empty() {
        let fields = generation.ignored.join(", ");
        tracing::warn!("generation_config.json: these are not supported and ignored: {fields}");
    }
    Ok(ModelDefaults {
        temperature: generation.temperature,
        top_p: generation.top_p,
        top_k: generation.top_k,
        min_p: generation.min_p,
        repetition_penalty: generation.repetition_penalty,
        max_new_tokens: generation.max_new_tokens,
    })
}
