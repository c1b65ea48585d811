//! A model folder: a local directory, or a snapshot in the hub cache.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{CONFIG_FILE, ModelConfig, eos_ids, parse_config};
use crate::embedding::EmbeddingConfig;
use crate::error::{ModelError, Result};
use crate::generation::{GENERATION_FILE, GenerationConfig, parse_generation_config};
use crate::json::{Fields, parse_object};
use crate::limits::{MAX_CONFIG_BYTES, MAX_INDEX_BYTES};
use crate::tokenizer_config::{
    TEMPLATE_FILE, TEMPLATE_JSON_FILE, TOKENIZER_CONFIG_FILE, TokenizerConfig,
};

/// Name of the tokenizer's file.
const TOKENIZER_FILE: &str = "tokenizer.json";

/// Receives (bytes done, bytes in all) of a download, from any thread.
pub type ProgressFn = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// How [`ModelFolder::open`] looks for a model.
#[derive(Clone)]
pub struct OpenOptions {
    /// Branch, tag or commit of a hub model; `None` is the default branch.
    pub revision: Option<String>,
    /// Cache of hub downloads; `None` follows `HF_HUB_CACHE` and `HF_HOME`.
    pub cache_dir: Option<PathBuf>,
    /// Access token; `None` follows `HF_TOKEN` and the token file.
    pub token: Option<String>,
    /// Base address of the hub or a mirror; `None` follows `HF_ENDPOINT`.
    pub endpoint: Option<String>,
    /// Only look into the cache. `HF_HUB_OFFLINE` has the same effect.
    pub offline: bool,
    /// Download weights as well (not needed for random weights, nor by the frontend plane).
    pub weights: bool,
    /// Called while files are downloaded.
    pub progress: Option<ProgressFn>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            revision: None,
            cache_dir: None,
            token: None,
            endpoint: None,
            offline: false,
            weights: true,
            progress: None,
        }
    }
}

impl fmt::Debug for OpenOptions {
    /// Does not show the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("revision", &self.revision)
            .field("cache_dir", &self.cache_dir)
            .field("token", &self.token.as_ref().map(|_| "..."))
            .field("endpoint", &self.endpoint)
            .field("offline", &self.offline)
            .field("weights", &self.weights)
            .finish_non_exhaustive()
    }
}

/// A directory with the files of one model. Holds paths only; nothing is parsed before it is asked
/// for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFolder {
    root: PathBuf,
}

impl ModelFolder {
    /// Opens `model`: a directory with a config.json, or else a hub id (`owner/name` or `name`),
    /// which is downloaded into the cache first. Only *.json, *.safetensors and *.jinja files of
    /// the top directory are downloaded.
    ///
    /// # Errors
    /// [`ModelError::NotFound`] if it is neither, [`ModelError::Hub`] if the hub has no such model
    /// or cannot be reached and the cache does not have it.
    pub fn open(model: &str, options: &OpenOptions) -> Result<Self> {
        Ok(Self { root: locate(model, CONFIG_FILE, options)? })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// config.json; exists.
    pub fn config_path(&self) -> PathBuf {
        self.root.join(CONFIG_FILE)
    }

    /// tokenizer.json, if it exists.
    pub fn tokenizer_path(&self) -> Option<PathBuf> {
        self.existing(TOKENIZER_FILE)
    }

    /// tokenizer_config.json, if it exists.
    pub fn tokenizer_config_path(&self) -> Option<PathBuf> {
        self.existing(TOKENIZER_CONFIG_FILE)
    }

    /// generation_config.json, if it exists.
    pub fn generation_config_path(&self) -> Option<PathBuf> {
        self.existing(GENERATION_FILE)
    }

    /// chat_template.jinja or chat_template.json, if one exists.
    pub fn chat_template_path(&self) -> Option<PathBuf> {
        self.existing(TEMPLATE_FILE).or_else(|| self.existing(TEMPLATE_JSON_FILE))
    }

    fn existing(&self, name: &str) -> Option<PathBuf> {
        Some(self.root.join(name)).filter(|path| path.is_file())
    }

    fn read_existing(&self, name: &str, max_bytes: u64) -> Result<Option<String>> {
        self.existing(name).map(|_| read_text(&self.root, name, max_bytes)).transpose()
    }

    /// Parses config.json. The end-of-sequence ids of generation_config.json win over its own, as
    /// in HF; a generation_config.json without any leaves them as they are.
    ///
    /// # Errors
    /// Those of [`parse_config`], for either file.
    pub fn config(&self) -> Result<ModelConfig> {
        let text = read_text(&self.root, CONFIG_FILE, MAX_CONFIG_BYTES)?;
        let mut config = parse_config(&text)?;
        if let Some(text) = self.read_existing(GENERATION_FILE, MAX_CONFIG_BYTES)? {
            let map = parse_object(GENERATION_FILE, &text)?;
            let fields = Fields::new(GENERATION_FILE, "", &map);
            if let Some(ids) = eos_ids(&fields, config.vocab_size)? {
                config.eos_ids = ids;
            }
        }
        Ok(config)
    }

    /// How embeddings are made, from config.json and modules.json.
    ///
    /// # Errors
    /// A file that is not JSON, or a field of the wrong type or out of its bounds.
    pub fn embedding_config(&self) -> Result<EmbeddingConfig> {
        EmbeddingConfig::read(&self.root)
    }

    /// Default sampling parameters; all absent if there is no generation_config.json.
    ///
    /// # Errors
    /// A parameter out of its bounds.
    pub fn generation_config(&self) -> Result<GenerationConfig> {
        match self.read_existing(GENERATION_FILE, MAX_CONFIG_BYTES)? {
            Some(text) => parse_generation_config(&text),
            None => Ok(GenerationConfig::default()),
        }
    }

    /// Chat templates and the special tokens that they use, from tokenizer_config.json and the
    /// template files.
    ///
    /// # Errors
    /// A file that is not JSON or a field of the wrong type.
    pub fn tokenizer_config(&self) -> Result<TokenizerConfig> {
        let mut config = match self.read_existing(TOKENIZER_CONFIG_FILE, MAX_INDEX_BYTES)? {
            Some(text) => TokenizerConfig::parse(&text)?,
            None => TokenizerConfig::default(),
        };
        if let Some(template) = self.read_existing(TEMPLATE_FILE, MAX_CONFIG_BYTES)? {
            config.set_default_template(template);
        } else if config.templates.is_empty()
            && let Some(text) = self.read_existing(TEMPLATE_JSON_FILE, MAX_CONFIG_BYTES)?
        {
            config.add_template_json(&text)?;
        }
        Ok(config)
    }
}

/// The directory that `model` names, or the snapshot of the hub id that it is; has a `file`.
pub(crate) fn locate(model: &str, file: &str, options: &OpenOptions) -> Result<PathBuf> {
    let path = Path::new(model);
    let root = if path.is_dir() {
        path.to_owned()
    } else if path.exists() {
        return Err(not_found(model, &format!("is a file, must be a directory with a {file}")));
    } else if !is_hub_id(model) {
        return Err(not_found(model, "is neither a directory nor a hub id (owner/name)"));
    } else {
        download(model, options)?
    };
    if !root.join(file).is_file() {
        return Err(not_found(model, &format!("{} has no {file}", root.display())));
    }
    Ok(root)
}

/// Reads a whole text file of at most `max_bytes`.
pub(crate) fn read_text(root: &Path, name: &str, max_bytes: u64) -> Result<String> {
    let path = root.join(name);
    let io = |source| ModelError::Io { path: path.clone(), source };
    let file = File::open(&path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > max_bytes {
        return Err(ModelError::file(name, format!("is larger than {max_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| ModelError::file(name, "is not UTF-8"))
}

fn not_found(model: &str, problem: &str) -> ModelError {
    ModelError::NotFound { model: model.to_owned(), problem: problem.to_owned() }
}

/// `name` or `owner/name`, in the characters that the hub allows.
fn is_hub_id(model: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty()
            && part.len() <= 96
            && part.chars().all(allowed)
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
    };
    let mut parts = model.split('/');
    let (first, second) = (parts.next().unwrap_or(""), parts.next());
    parts.next().is_none() && is_part(first) && second.is_none_or(is_part)
}

#[cfg(feature = "hub")]
fn download(model: &str, options: &OpenOptions) -> Result<PathBuf> {
    crate::hub::snapshot(model, options)
}

#[cfg(not(feature = "hub"))]
fn download(model: &str, _options: &OpenOptions) -> Result<PathBuf> {
    Err(not_found(model, "is not a directory, and this build does not download from the hub"))
}
