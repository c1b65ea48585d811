//! What a model folder says of embeddings: config.json whether shorter ones may be asked for, as in
//! vLLM; modules.json, as sentence-transformers writes it, how they are made.

use std::path::Path;

use serde_json::{Map, Value};

use crate::config::CONFIG_FILE;
use crate::error::{ModelError, Result};
use crate::folder::read_text;
use crate::json::{Fields, parse_object};
use crate::limits::{MAX_CONFIG_BYTES, MAX_HIDDEN_SIZE};

const MODULES_FILE: &str = "modules.json";
/// Entries of `matryoshka_dimensions`.
const MAX_DIMENSIONS: usize = 64;
/// Modules of one model.
const MAX_MODULES: usize = 16;
/// What modules.json calls ways of pooling; each has a flag of this prefix.
const POOLING_PREFIX: &str = "pooling_mode_";
const LAST_TOKEN: &str = "pooling_mode_lasttoken";

/// How embeddings of a model are made from the hidden state of the last token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingConfig {
    /// Lengths that may be asked for.
    pub dimensions: Dimensions,
    /// Their Euclidean length is made 1 unless a request says otherwise.
    pub normalize: bool,
    /// Why the last token's state is not the embedding; names file and field.
    pub refused: Option<String>,
}

/// Lengths that embeddings of a model may be cut to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimensions {
    /// None: the model was not trained for it.
    Whole,
    /// Any up to the hidden size (`is_matryoshka`).
    Any,
    /// These (`matryoshka_dimensions`).
    Of(Vec<u32>),
}

impl EmbeddingConfig {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = read_text(root, CONFIG_FILE, MAX_CONFIG_BYTES)?;
        let dimensions = dimensions(&parse_object(CONFIG_FILE, &text)?)?;
        if !root.join(MODULES_FILE).is_file() {
            return Ok(Self { dimensions, normalize: true, refused: None });
        }
        let modules = read_text(root, MODULES_FILE, MAX_CONFIG_BYTES)?;
        let modules = Modules::parse(&modules, |path| pooling(root, path))?;
        Ok(Self { dimensions, normalize: modules.normalize, refused: modules.refused })
    }
}

fn dimensions(map: &Map<String, Value>) -> Result<Dimensions> {
    let fields = Fields::new(CONFIG_FILE, "", map);
    let any = fields.bool("is_matryoshka")?.unwrap_or(false);
    let list = fields.token_ids("matryoshka_dimensions", 1..=MAX_HIDDEN_SIZE, MAX_DIMENSIONS)?;
    Ok(match list {
        Some(list) => Dimensions::Of(list),
        None if any => Dimensions::Any,
        None => Dimensions::Whole,
    })
}

/// What follows the decoder.
struct Modules {
    normalize: bool,
    refused: Option<String>,
}

impl Modules {
    /// `pooling` says why the pooling in a folder is another one.
    fn parse(text: &str, pooling: impl Fn(&str) -> Result<Option<String>>) -> Result<Self> {
        let file = |problem: String| ModelError::File { file: MODULES_FILE.into(), problem };
        let list: Vec<Map<String, Value>> =
            serde_json::from_str(text).map_err(|error| file(error.to_string()))?;
        if list.len() > MAX_MODULES {
            return Err(file(format!("has {} modules, at most {MAX_MODULES}", list.len())));
        }
        let mut modules = Self { normalize: false, refused: None };
        for module in &list {
            let fields = Fields::new(MODULES_FILE, "", module);
            let kind = fields.str("type")?.unwrap_or_default();
            match kind.rsplit('.').next() {
                Some("Transformer") => {}
                Some("Normalize") => modules.normalize = true,
                Some("Pooling") => {
                    let path = fields.str("path")?.unwrap_or_default();
                    modules.refused = modules.refused.or(pooling(path)?);
                }
                _ => {
                    let reason = format!("{MODULES_FILE}: a module of type {kind:?}");
                    modules.refused.get_or_insert(reason);
                }
            }
        }
        Ok(modules)
    }
}

/// Why a pooling is not that of the last token. What is not there (a hub's folders are not
/// downloaded) is taken to be.
fn pooling(root: &Path, path: &str) -> Result<Option<String>> {
    let plain = !path.is_empty() && path.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let name = format!("{path}/{CONFIG_FILE}");
    if !plain || !root.join(&name).is_file() {
        return Ok(None);
    }
    let map = parse_object(&name, &read_text(root, &name, MAX_CONFIG_BYTES)?)?;
    let on = |(flag, value): (&String, &Value)| {
        (flag.starts_with(POOLING_PREFIX) && *value == Value::Bool(true)).then(|| flag.clone())
    };
    let named = map.get("pooling_mode").and_then(Value::as_str);
    let named = named.map(|mode| format!("{POOLING_PREFIX}{mode}"));
    let modes: Vec<String> = map.iter().filter_map(on).chain(named).collect();
    let last = modes.iter().all(|mode| *mode == LAST_TOKEN);
    Ok((!last).then(|| format!("{name}: {modes:?}, only {LAST_TOKEN} is implemented")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, reason: Option<&str>) -> (bool, Option<String>) {
        let pooling = |path: &str| {
            assert_eq!(path, "1_Pooling");
            Ok(reason.map(str::to_owned))
        };
        let modules = Modules::parse(text, pooling).unwrap();
        (modules.normalize, modules.refused)
    }

    fn modules(kinds: &[&str]) -> String {
        let module = |(i, kind): (usize, &&str)| {
            let path = if i == 0 { String::new() } else { format!("{i}_{kind}") };
            format!(
                r#"{{"idx":{i},"name":"{i}","path":"{path}",
                     "type":"sentence_transformers.models.{kind}"}}"#
            )
        };
        format!("[{}]", kinds.iter().enumerate().map(module).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn modules_say_whether_embeddings_are_normalised_and_what_is_not_implemented() {
        let qwen3 = modules(&["Transformer", "Pooling", "Normalize"]);
        assert_eq!(parsed(&qwen3, None), (true, None));
        assert_eq!(parsed(&qwen3, Some("mean")), (true, Some("mean".into())));
        assert_eq!(parsed(&modules(&["Transformer", "Pooling"]), None), (false, None));
        let (_, refused) = parsed(&modules(&["Transformer", "Pooling", "Dense"]), None);
        assert!(refused.is_some_and(|why| why.contains("models.Dense")));
        assert!(Modules::parse("{}", |_| Ok(None)).is_err());
        let many = modules(&["Transformer"; 17]);
        assert!(Modules::parse(&many, |_| Ok(None)).is_err());
    }

    #[test]
    fn shorter_embeddings_are_what_config_json_says() {
        let read = |text| dimensions(&parse_object(CONFIG_FILE, text)?);
        assert_eq!(read("{}").unwrap(), Dimensions::Whole);
        assert_eq!(read(r#"{"is_matryoshka": false}"#).unwrap(), Dimensions::Whole);
        assert_eq!(read(r#"{"is_matryoshka": true}"#).unwrap(), Dimensions::Any);
        let listed = r#"{"is_matryoshka": true, "matryoshka_dimensions": [256, 64]}"#;
        assert_eq!(read(listed).unwrap(), Dimensions::Of(vec![256, 64]));
        for wrong in [r#"{"is_matryoshka": 1}"#, r#"{"matryoshka_dimensions": [0]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pooling_of_another_kind_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::create_dir(folder.join("1_Pooling")).unwrap();
        let with = |text: &str| {
            std::fs::write(folder.join("1_Pooling/config.json"), text).unwrap();
            pooling(folder, "1_Pooling").unwrap()
        };
        assert_eq!(with(r#"{"pooling_mode_lasttoken": true, "include_prompt": true}"#), None);
        let mean = with(r#"{"pooling_mode_lasttoken": false, "pooling_mode_mean_tokens": true}"#);
        assert!(mean.is_some_and(|why| why.contains("pooling_mode_mean_tokens")));
        assert_eq!(with(r#"{"pooling_mode": "lasttoken"}"#), None);
        assert!(with(r#"{"pooling_mode": "mean"}"#).is_some_and(|why| why.contains("mean")));
        assert_eq!(pooling(folder, "2_Pooling").unwrap(), None);
        assert_eq!(pooling(folder, "../1_Pooling").unwrap(), None);
    }
}
