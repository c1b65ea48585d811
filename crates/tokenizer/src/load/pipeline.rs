//! The stages around the model in tokenizer.json. Everything that is not recognised is refused.

use serde_json::Value;

use super::{Cut, Ends, LoadError, Prepend, Scheme, broken, unsupported};
use crate::offsets::Trim;
use crate::split::Pattern;

/// What SentencePiece writes for a space.
pub const SPACE_MARK: &str = "\u{2581}";

/// What the normalizer does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Normalizer {
    /// Normalization form C.
    pub nfc: bool,
    /// Puts [`SPACE_MARK`] before the text.
    pub prepend: bool,
    /// Writes [`SPACE_MARK`] for spaces.
    pub replace: bool,
}

pub fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn flag(value: &Value, name: &str, default: bool) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(default)
}

/// A stage as the list of its steps: `Sequence` flattened, `null` empty.
fn steps<'a>(value: &'a Value, list: &str) -> Vec<&'a Value> {
    match (value, value.get(list).and_then(Value::as_array)) {
        (Value::Null, _) => Vec::new(),
        (_, Some(inner)) if kind(value) == "Sequence" => {
            inner.iter().flat_map(|v| steps(v, list)).collect()
        }
        _ => vec![value],
    }
}

/// # Errors
/// If a step is not known, or is in a place where it means something else.
pub fn normalizer(value: &Value) -> Result<Normalizer, LoadError> {
    let mut known = Normalizer::default();
    for step in steps(value, "normalizers") {
        let is_fresh = known == Normalizer::default();
        match kind(step) {
            "NFC" if is_fresh => known.nfc = true,
            "Prepend" if is_fresh && text(step, "/prepend") == Some(SPACE_MARK) => {
                known.prepend = true;
            }
            "Replace" if !known.replace && !known.nfc && is_space_to_mark(step) => {
                known.replace = true;
            }
            _ => return Err(unsupported("normalizer", step.to_string())),
        }
    }
    if known.prepend && !known.replace {
        return Err(unsupported("normalizer", value.to_string()));
    }
    Ok(known)
}

fn is_space_to_mark(step: &Value) -> bool {
    text(step, "/pattern/String") == Some(" ") && text(step, "/content") == Some(SPACE_MARK)
}

/// How the text is cut. `Cut::Spaces` comes with [`Ends::Never`] where nothing asks for a cut.
///
/// # Errors
/// If a step or a combination is not known.
pub fn pre_tokenizer(value: &Value, normalizer: Normalizer) -> Result<Cut, LoadError> {
    let refuse = || unsupported("pre_tokenizer", value.to_string());
    let steps = steps(value, "pretokenizers");
    if normalizer.replace {
        // There is no space left that a split could find.
        let nothing =
            steps.iter().all(|s| kind(s) == "Split" && text(s, "/pattern/String") == Some(" "));
        let prepend = if normalizer.prepend { Prepend::Always } else { Prepend::Never };
        return if nothing {
            Ok(Cut::Spaces { prepend, ends: Ends::Never })
        } else {
            Err(refuse())
        };
    }
    match steps.as_slice() {
        [step] if kind(step) == "Metaspace" && !normalizer.nfc => {
            metaspace(step).ok_or_else(refuse)
        }
        [step] if kind(step) == "ByteLevel" && flag(step, "use_regex", true) => {
            Ok(Cut::Pattern { pattern: Pattern::Gpt2, prepend: byte_level_prepend(step) })
        }
        [split, step] if kind(step) == "ByteLevel" && !flag(step, "use_regex", true) => {
            // A space would be put before every piece.
            if byte_level_prepend(step) != Prepend::Never {
                return Err(refuse());
            }
            let pattern = split_pattern(split).ok_or_else(refuse)?;
            Ok(Cut::Pattern { pattern, prepend: Prepend::Never })
        }
        _ => Err(refuse()),
    }
}

fn byte_level_prepend(step: &Value) -> Prepend {
    if flag(step, "add_prefix_space", true) { Prepend::IfMissing } else { Prepend::Never }
}

/// Isolated matches are the pieces; so are the matches where all else is removed, because the
/// known expressions match everything.
fn split_pattern(step: &Value) -> Option<Pattern> {
    let all = matches!(
        (text(step, "/behavior"), step.get("invert").and_then(Value::as_bool)),
        (Some("Isolated"), Some(false)) | (Some("Removed"), Some(true))
    );
    if kind(step) != "Split" || !all {
        return None;
    }
    Pattern::from_regex(text(step, "/pattern/Regex")?)
}

fn metaspace(step: &Value) -> Option<Cut> {
    if text(step, "/replacement") != Some(SPACE_MARK) {
        return None;
    }
    let scheme = text(step, "/prepend_scheme").unwrap_or("always");
    let prefix = step.get("add_prefix_space").and_then(Value::as_bool);
    let prepend = match (scheme, prefix) {
        ("never", _) => Prepend::Never,
        (_, Some(false)) => return None,
        ("always", _) => Prepend::IfMissing,
        ("first", _) => Prepend::IfMissingAtStart,
        _ => return None,
    };
    let ends = if flag(step, "split", true) { Ends::EverySpace } else { Ends::Never };
    Some(Cut::Spaces { prepend, ends })
}

/// Ids before and after a single text.
///
/// # Errors
/// If a step is not known.
pub fn post_processor(value: &Value) -> Result<(Vec<u32>, Vec<u32>), LoadError> {
    let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
    for step in steps(value, "processors") {
        let (before, after) = match kind(step) {
            "ByteLevel" => continue,
            "TemplateProcessing" => template(step)?,
            "BertProcessing" | "RobertaProcessing" => {
                let id = |name: &str| {
                    let id = step.get(name).and_then(|v| v.get(1)).and_then(Value::as_u64);
                    let id = id.and_then(|id| u32::try_from(id).ok());
                    id.ok_or_else(|| broken(format!("post_processor.{name}"), "no id"))
                };
                (vec![id("cls")?], vec![id("sep")?])
            }
            _ => return Err(unsupported("post_processor", step.to_string())),
        };
        prefix.splice(0..0, before);
        suffix.extend(after);
    }
    Ok((prefix, suffix))
}

/// What the post-processor does with the spaces around tokens.
pub fn trim(value: &Value) -> Option<Trim> {
    let trims = |step: &&Value| {
        matches!(kind(step), "ByteLevel" | "RobertaProcessing") && flag(step, "trim_offsets", true)
    };
    let step = steps(value, "processors").into_iter().find(trims)?;
    Some(Trim { keeps_first: flag(step, "add_prefix_space", true) })
}

fn template(step: &Value) -> Result<(Vec<u32>, Vec<u32>), LoadError> {
    let broken = |reason: &str| broken("post_processor.single", reason);
    let single = step.get("single").and_then(Value::as_array).ok_or_else(|| broken("missing"))?;
    let (mut sides, mut side) = ([Vec::new(), Vec::new()], 0);
    for part in single {
        if let Some(name) = text(part, "/SpecialToken/id") {
            let token = step.get("special_tokens").and_then(|t| t.get(name));
            let ids = token.and_then(|t| t.get("ids")).and_then(Value::as_array);
            for id in ids.ok_or_else(|| broken("a special token without ids"))? {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                sides[side].push(id.ok_or_else(|| broken("an id is no 32-bit number"))?);
            }
        } else if text(part, "/Sequence/id") == Some("A") && side == 0 {
            side = 1;
        } else {
            return Err(unsupported("post_processor.single", part.to_string()));
        }
    }
    let [prefix, suffix] = sides;
    if side == 1 { Ok((prefix, suffix)) } else { Err(broken("no sequence")) }
}

/// # Errors
/// If the decoder is of neither family.
pub fn decoder(value: &Value) -> Result<Scheme, LoadError> {
    let refuse = || unsupported("decoder", value.to_string());
    let steps = steps(value, "decoders");
    let is_replace = |step: &Value| {
        kind(step) == "Replace"
            && text(step, "/pattern/String") == Some(SPACE_MARK)
            && text(step, "/content") == Some(" ")
    };
    match steps.as_slice() {
        [step] if kind(step) == "ByteLevel" => Ok(Scheme::Bytes),
        [step, fuse] if kind(step) == "ByteLevel" && kind(fuse) == "Fuse" => Ok(Scheme::Bytes),
        [replace, fallback, fuse, strip @ ..]
            if is_replace(replace) && kind(fallback) == "ByteFallback" && kind(fuse) == "Fuse" =>
        {
            match strip {
                [] => Ok(Scheme::Fallback { strip: 0 }),
                [step] if kind(step) == "Strip" && text(step, "/content") == Some(" ") => {
                    let count = |name| step.get(name).and_then(Value::as_u64).unwrap_or(0);
                    if count("stop") != 0 {
                        return Err(refuse());
                    }
                    let strip = usize::try_from(count("start")).unwrap_or(usize::MAX);
                    Ok(Scheme::Fallback { strip })
                }
                _ => Err(refuse()),
            }
        }
        _ => Err(refuse()),
    }
}
