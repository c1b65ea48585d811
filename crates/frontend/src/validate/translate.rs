//! Requests of other APIs as chat requests, so that one validator reads them all.

use serde_json::{Map, Value};

use super::chat::ChatRequest;
use super::fields::read_json;
use super::{Fields, ModelLimits, SloHeaders};
use crate::api_error::ApiError;

/// Fields of this server's chat requests that mean the same in the other APIs.
const EVERYWHERE: &[&str] = &[
    "seed",
    "min_p",
    "repetition_penalty",
    "logit_bias",
    "stop_token_ids",
    "ignore_eos",
    "min_tokens",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag",
    "chat_template_kwargs",
    "priority",
    "cache_salt",
    "slo_ttft_ms",
    "slo_tpot_ms",
    "request_id",
];

/// A chat request that is put together from one of another API.
#[derive(Debug, Default)]
pub struct ChatFields(Map<String, Value>);

impl ChatFields {
    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// Sets a field to what `fields` has under another name, if it has it.
    ///
    /// # Errors
    /// 400 if that is no JSON that can be held.
    pub fn copy(&mut self, fields: &Fields, theirs: &str, ours: &str) -> Result<(), ApiError> {
        if let Some(raw) = fields.raw(theirs) {
            self.set(ours, read_json::<Value>(theirs, raw)?);
        }
        Ok(())
    }

    /// Sets fields to what `fields` has under the same names.
    ///
    /// # Errors
    /// Those of [`ChatFields::copy`].
    pub fn copy_same(&mut self, fields: &Fields, names: &[&str]) -> Result<(), ApiError> {
        names.iter().try_for_each(|name| self.copy(fields, name, name))
    }

    /// Sets the fields that mean the same in every API.
    ///
    /// # Errors
    /// Those of [`ChatFields::copy`].
    pub fn copy_shared(&mut self, fields: &Fields) -> Result<(), ApiError> {
        self.copy_same(fields, EVERYWHERE)
    }

    /// Reads the request as the chat endpoint would.
    ///
    /// # Errors
    /// 400 that names the chat's field.
    pub fn read(self, slo: SloHeaders, model: ModelLimits) -> Result<ChatRequest, ApiError> {
        ChatRequest::read(&Fields::parse(self.text().as_bytes())?, slo, model)
    }

    /// JSON text of the request.
    pub fn text(self) -> String {
        Value::Object(self.0).to_string()
    }
}

impl ApiError {
    /// 400: `param` must be what it is not.
    pub fn must_be(param: &str, what: &str) -> Self {
        Self::invalid(param, format!("`{param}` must be {what}"))
    }
}
