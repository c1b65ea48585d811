//! What an answer must obey: OpenAI's `response_format`, vLLM's `structured_outputs`, and the
//! `guided_*` fields and `structural_tag` that came before it. One of them at most.

use saccade_grammar::{Bound, GrammarError, Source};

use super::fields::{Fields, read_json, read_list};
use crate::api_error::ApiError;
use crate::limits::{MAX_GRAMMAR_BYTES, MAX_GRAMMAR_CHOICES};

/// A grammar that a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedGrammar {
    /// What it says.
    pub source: Source,
    /// The field that has it, for complaints.
    pub param: &'static str,
    /// Where in its schema the calls of `tools` are, if they are beside what that field has.
    pub calls_at: Option<&'static str>,
}

impl AskedGrammar {
    /// A grammar that one field asks for.
    pub fn of(source: Source, param: &'static str) -> Self {
        Self { source, param, calls_at: None }
    }

    /// 400: it was refused when it was compiled.
    pub fn refused(&self, error: &GrammarError) -> ApiError {
        let path = match error {
            GrammarError::Unsupported { path, .. } | GrammarError::Invalid { path, .. } => path,
            _ => "",
        };
        let is_of_calls =
            self.calls_at.is_some_and(|at| path.trim_start_matches('#').starts_with(at));
        let param = if is_of_calls { "tools" } else { self.param };
        let flag = match error {
            GrammarError::TooLarge { bound: Bound::Steps, .. } => " (--max-grammar-steps)",
            GrammarError::TooLarge { bound: Bound::Automaton, .. } => " (--max-grammar-kib)",
            _ => "",
        };
        ApiError::invalid(param, format!("`{param}`: {error}{flag}"))
    }
}

/// OpenAI's field: the format of what the model says.
pub(super) const RESPONSE_FORMAT: &str = "response_format";

/// Fields of `structured_outputs` that would change what the others mean.
const OPTIONS: &[(&str, &str)] = &[
    ("disable_fallback", "false"),
    ("disable_any_whitespace", "false"),
    ("disable_additional_properties", "false"),
    ("whitespace_pattern", "null"),
];

/// Reads whichever of the fields is there.
pub(super) fn grammar(fields: &Fields) -> Result<Option<AskedGrammar>, ApiError> {
    let asked = [
        (RESPONSE_FORMAT, fields.raw(RESPONSE_FORMAT).map(response_format).transpose()?.flatten()),
        (
            "structured_outputs",
            fields.raw("structured_outputs").map(structured_outputs).transpose()?,
        ),
        (
            "guided_json",
            fields.raw("guided_json").map(|raw| schema("guided_json", raw)).transpose()?,
        ),
        (
            "guided_regex",
            fields.raw("guided_regex").map(|raw| regex("guided_regex", raw)).transpose()?,
        ),
        (
            "guided_choice",
            fields.raw("guided_choice").map(|raw| choice("guided_choice", raw)).transpose()?,
        ),
        (
            "guided_grammar",
            fields
                .raw("guided_grammar")
                .map(|raw| context_free("guided_grammar", raw))
                .transpose()?,
        ),
        (
            "structural_tag",
            fields
                .raw("structural_tag")
                .map(|raw| structural_tag("structural_tag", raw))
                .transpose()?,
        ),
    ];
    let mut found = None;
    for (param, source) in asked {
        let Some(source) = source else { continue };
        if let Some(AskedGrammar { param: first, .. }) = found {
            let message = format!("`{param}` cannot be combined with `{first}`");
            return Err(ApiError::invalid(param, message));
        }
        found = Some(AskedGrammar::of(source, param));
    }
    Ok(found)
}

fn response_format(raw: &str) -> Result<Option<Source>, ApiError> {
    const NAME: &str = RESPONSE_FORMAT;
    let format = object(NAME, raw)?;
    let kind: String = read_json(NAME, required(&format, NAME, "type")?)?;
    match kind.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(Source::JsonObject)),
        "json_schema" => {
            let inner =
                object("response_format.json_schema", required(&format, NAME, "json_schema")?)?;
            schema(NAME, required(&inner, "response_format.json_schema", "schema")?).map(Some)
        }
        "structural_tag" => structural_tag(NAME, raw).map(Some),
        other => Err(ApiError::invalid(
            NAME,
            format!(
                "`response_format.type` must be text, json_object, json_schema or structural_tag, \
                 got {}",
                super::fields::cut(other)
            ),
        )),
    }
}

fn structured_outputs(raw: &str) -> Result<Source, ApiError> {
    const NAME: &str = "structured_outputs";
    let outputs = object(NAME, raw)?;
    let read = [
        outputs.raw("json").map(|raw| schema(NAME, raw)),
        outputs.raw("regex").map(|raw| regex(NAME, raw)),
        outputs.raw("choice").map(|raw| choice(NAME, raw)),
        outputs.raw("grammar").map(|raw| context_free(NAME, raw)),
        outputs.raw("structural_tag").map(|raw| structural_tag(NAME, raw)),
        outputs.raw("json_object").filter(|raw| *raw != "false").map(|raw| match raw {
            "true" => Ok(Source::JsonObject),
            _ => Err(ApiError::invalid(NAME, "`structured_outputs.json_object` must be a boolean")),
        }),
    ];
    let unchanged =
        |(name, harmless): &(&str, &str)| outputs.raw(name).is_none_or(|raw| raw == *harmless);
    if let Some((name, _)) = OPTIONS.iter().find(|row| !unchanged(row)) {
        return Err(ApiError::invalid(
            NAME,
            format!("`structured_outputs.{name}` is not supported"),
        ));
    }
    if let Some(name) = outputs.unknown().next() {
        let name = super::fields::cut(name);
        return Err(ApiError::invalid(
            NAME,
            format!("`structured_outputs.{name}` is not supported"),
        ));
    }
    let mut read = read.into_iter().flatten();
    match (read.next(), read.next()) {
        (Some(source), None) => source,
        _ => Err(ApiError::invalid(
            NAME,
            "`structured_outputs` must have one of json, regex, choice, grammar, structural_tag \
             and json_object",
        )),
    }
}

/// A JSON Schema, or a string that holds one.
fn schema(param: &'static str, raw: &str) -> Result<Source, ApiError> {
    json_text(param, raw).map(Source::JsonSchema)
}

/// In either shape, or a string that holds one.
fn structural_tag(param: &'static str, raw: &str) -> Result<Source, ApiError> {
    json_text(param, raw).map(Source::StructuralTag)
}

/// JSON, or a string that holds it.
fn json_text(param: &'static str, raw: &str) -> Result<String, ApiError> {
    let text = if raw.starts_with('"') { read_json(param, raw)? } else { raw.to_owned() };
    bounded(param, text.len())?;
    Ok(text)
}

fn regex(param: &'static str, raw: &str) -> Result<Source, ApiError> {
    let text: String = read_json(param, raw)?;
    bounded(param, text.len())?;
    Ok(Source::Regex(text))
}

/// In GBNF or in Lark's notation.
fn context_free(param: &'static str, raw: &str) -> Result<Source, ApiError> {
    let text: String = read_json(param, raw)?;
    bounded(param, text.len())?;
    Ok(Source::Grammar(text))
}

fn choice(param: &'static str, raw: &str) -> Result<Source, ApiError> {
    bounded(param, raw.len())?;
    let texts: Vec<String> = read_list(param, raw, MAX_GRAMMAR_CHOICES)?;
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        let message = "choices must be one text or more, none of them empty";
        return Err(ApiError::invalid(param, message));
    }
    Ok(Source::Choice(texts))
}

fn bounded(param: &'static str, bytes: usize) -> Result<(), ApiError> {
    if bytes <= MAX_GRAMMAR_BYTES {
        return Ok(());
    }
    let message = format!("`{param}` must have at most {MAX_GRAMMAR_BYTES} bytes, got {bytes}");
    Err(ApiError::invalid(param, message))
}

fn object<'a>(name: &str, raw: &'a str) -> Result<Fields<'a>, ApiError> {
    Fields::parse(raw.as_bytes())
        .map_err(|_| ApiError::invalid(field_of(name), format!("`{name}` must be an object")))
}

fn required<'a>(fields: &Fields<'a>, name: &str, field: &str) -> Result<&'a str, ApiError> {
    let missing = || ApiError::invalid(field_of(name), format!("`{name}.{field}` is missing"));
    fields.raw(field).ok_or_else(missing)
}

/// The request's own field that a dotted name is within.
fn field_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
