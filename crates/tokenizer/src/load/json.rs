//! tokenizer.json, as HF `tokenizers` writes it.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::alphabet::token_bytes;
use super::pipeline::{self, SPACE_MARK};
use super::{AddedToken, Cut, Ends, LoadError, Scheme, Spec, broken, unsupported};
use crate::bpe::{Merge, Symbolism, Vocabulary};

#[derive(Deserialize)]
struct File<'a> {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(borrow)]
    model: &'a RawValue,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// Enough of a model to tell what it is.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: Option<String>,
    merges: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Model {
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: HashMap<String, u32>,
    merges: Vec<Pair>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Two(String, String),
    Joined(String),
}

impl Pair {
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::Two(left, right) => Some((left, right)),
            Self::Joined(both) => both.split_once(' ').filter(|(_, right)| !right.contains(' ')),
        }
    }
}

/// Reads the text of a tokenizer.json.
///
/// # Errors
/// If it is broken, or asks for something that is not supported.
pub fn from_json(text: &str) -> Result<Spec, LoadError> {
    let file: File = serde_json::from_str(text).map_err(|e| broken("tokenizer.json", e))?;
    let model = model(file.model)?;
    let normalizer = pipeline::normalizer(&file.normalizer)?;
    let mut cut = pipeline::pre_tokenizer(&file.pre_tokenizer, normalizer)?;
    let (prefix, suffix) = pipeline::post_processor(&file.post_processor)?;
    let trim = pipeline::trim(&file.post_processor);
    let scheme = pipeline::decoder(&file.decoder)?;
    let vocabulary = match (cut, scheme) {
        (Cut::Pattern { .. }, Scheme::Bytes) => byte_level(&model)?,
        (Cut::Spaces { .. }, Scheme::Fallback { .. }) => characters(&model)?,
        _ => return Err(unsupported("decoder", "a decoder of the other family")),
    };
    if let Cut::Spaces { ends, .. } = &mut cut
        && *ends == Ends::Never
        && !model.ignore_merges
        && splits_at_spaces(&model)
    {
        *ends = Ends::Words;
    }
    let added = added(file.added_tokens, &model, normalizer)?;
    let strings = model.vocab.into_iter().map(|(string, id)| (id, string)).collect();
    let nfc = normalizer.nfc;
    Ok(Spec { vocabulary, nfc, cut, added, prefix, suffix, trim, scheme, strings })
}

fn model(raw: &RawValue) -> Result<Model, LoadError> {
    let broken_model = |e: serde_json::Error| broken("model", e);
    let head: Head = serde_json::from_str(raw.get()).map_err(broken_model)?;
    match head.kind.as_deref() {
        Some("BPE") => {}
        None if head.merges.is_some() => {}
        other => return Err(unsupported("model.type", other.unwrap_or("a missing type"))),
    }
    let model: Model = serde_json::from_str(raw.get()).map_err(broken_model)?;
    if model.dropout.is_some_and(|d| d != 0.0) {
        return Err(unsupported("model.dropout", "dropout"));
    }
    for (field, value) in [
        ("model.continuing_subword_prefix", &model.continuing_subword_prefix),
        ("model.end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        if value.as_ref().is_some_and(|v| !v.is_empty()) {
            return Err(unsupported(field, value.clone().unwrap_or_default()));
        }
    }
    Ok(model)
}

fn merges(model: &Model) -> Result<Vec<Merge>, LoadError> {
    let mut joined = String::new();
    let one = |(rank, pair): (usize, &Pair)| {
        let field = || format!("model.merges[{rank}]");
        let (left, right) = pair.parts().ok_or_else(|| broken(field(), "not two tokens"))?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let id = |token: &str| {
            let missing = || broken(field(), format_args!("{token:?} is no token"));
            model.vocab.get(token).copied().ok_or_else(missing)
        };
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        Ok(Merge { left: id(left)?, right: id(right)?, merged: id(&joined)?, rank })
    };
    model.merges.iter().enumerate().map(one).collect()
}

fn byte_level(model: &Model) -> Result<Vocabulary, LoadError> {
    if model.byte_fallback {
        return Err(unsupported("model.byte_fallback", "fallback below a byte-level alphabet"));
    }
    let mut byte_ids = [0; 256];
    for byte in 0..=255u8 {
        let string = super::byte_to_char(byte).to_string();
        let missing = || unsupported("model.vocab", format!("a vocabulary without {string:?}"));
        byte_ids[usize::from(byte)] = model.vocab.get(&string).copied().ok_or_else(missing)?;
    }
    let pieces = model.vocab.iter().filter_map(|(s, &id)| Some((id, token_bytes(s)?)));
    Ok(Vocabulary {
        symbolism: Symbolism::Bytes,
        pieces: pieces.filter(|(_, bytes)| !bytes.is_empty()).collect(),
        byte_ids,
        merges: merges(model)?,
        ignore_merges: model.ignore_merges,
    })
}

fn characters(model: &Model) -> Result<Vocabulary, LoadError> {
    if !model.byte_fallback {
        return Err(unsupported("model.byte_fallback", "unknown tokens instead of fallback"));
    }
    if !model.vocab.contains_key(SPACE_MARK) {
        return Err(unsupported("model.vocab", "a vocabulary without a token for spaces"));
    }
    let mut byte_ids = [0; 256];
    for byte in 0..=255u8 {
        let string = format!("<0x{byte:02X}>");
        let missing = || unsupported("model.vocab", format!("a vocabulary without {string}"));
        byte_ids[usize::from(byte)] = model.vocab.get(&string).copied().ok_or_else(missing)?;
    }
    // Spaces stay spaces in here: a text has none left that could be confused with them.
    let pieces =
        model.vocab.iter().filter(|(string, _)| !string.is_empty() && !string.contains(' '));
    let pieces = pieces.map(|(string, &id)| (id, string.replace(SPACE_MARK, " ").into_bytes()));
    Ok(Vocabulary {
        symbolism: Symbolism::Chars,
        pieces: pieces.collect(),
        byte_ids,
        merges: merges(model)?,
        ignore_merges: model.ignore_merges,
    })
}

/// Whether no merge makes a token that continues with a space after anything else.
fn splits_at_spaces(model: &Model) -> bool {
    let goes_on = |joined: &str| {
        let mut chars = joined.chars().skip_while(|&c| SPACE_MARK.contains(c));
        chars.any(|c| SPACE_MARK.contains(c))
    };
    model.merges.iter().filter_map(Pair::parts).all(|(l, r)| !goes_on(&format!("{l}{r}")))
}

fn added(
    tokens: Vec<Added>,
    model: &Model,
    normalizer: pipeline::Normalizer,
) -> Result<Vec<AddedToken>, LoadError> {
    let mut next = model.vocab.len() as u64;
    let has_holes = model.vocab.values().any(|&id| u64::from(id) >= next);
    let one = |t: Added| {
        let changes = normalizer.prepend
            || normalizer.replace && t.content.contains(' ')
            || normalizer.nfc && !crate::normalize::is_nfc(&t.content);
        if t.normalized && changes {
            return Err(unsupported("added_tokens", format!("normalized token {:?}", t.content)));
        }
        // HF renumbers added tokens: those of the model keep its ids, the others follow its last.
        let id = match model.vocab.get(&t.content) {
            Some(&id) => u64::from(id),
            None => {
                next += 1;
                if has_holes { u64::MAX } else { next - 1 }
            }
        };
        if id != u64::from(t.id) {
            return Err(unsupported("added_tokens", format!("{:?} with id {}", t.content, t.id)));
        }
        Ok(AddedToken {
            id: t.id,
            content: t.content,
            single_word: t.single_word,
            lstrip: t.lstrip,
            rstrip: t.rstrip,
            normalized: t.normalized,
            special: t.special,
        })
    };
    tokens.into_iter().filter(|t| !t.content.is_empty()).map(one).collect()
}
