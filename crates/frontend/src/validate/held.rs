//! What an answer is held to where a request has tools, and asks for a format as well.

use saccade_grammar::Source;
use serde_json::{Value, json};

use super::grammar::{AskedGrammar, RESPONSE_FORMAT};
use super::tools::{ToolChoice, Tools, move_references};
use crate::api_error::ApiError;

/// Where calls are in the schema of an answer that is either.
const CALLS_AT: &str = "/anyOf/1";

impl Tools {
    /// The grammar of an answer that may have calls of these, where `asked` is what the request
    /// asks for besides. `response_format` is of what the model says: where it must call it says
    /// nothing, and where it may it does one or the other. Other grammars are of the whole answer.
    ///
    /// # Errors
    /// 400 if the answer cannot be both.
    pub(super) fn held_beside(
        &mut self,
        asked: Option<AskedGrammar>,
    ) -> Result<Option<AskedGrammar>, ApiError> {
        let is_format = |asked: &&AskedGrammar| asked.param == RESPONSE_FORMAT;
        let format = asked.as_ref().filter(is_format);
        if let Some(calls) = self.grammar() {
            return match &asked {
                Some(other) if format.is_none() => {
                    let message =
                        format!("`tool_choice` cannot be combined with `{}`", other.param);
                    Err(ApiError::invalid("tool_choice", message))
                }
                _ => Ok(Some(calls)),
            };
        }
        let either = format.and_then(|format| self.or_format(&format.source));
        if either.is_none() {
            return Ok(asked);
        }
        self.are_listed = true;
        self.strict = None;
        Ok(either)
    }

    /// An object of the format, or an array of calls, which is none; `None` where the model may not
    /// call, or where the format is not one of objects.
    fn or_format(&self, format: &Source) -> Option<AskedGrammar> {
        if self.choice != ToolChoice::Auto {
            return None;
        }
        let mut object = match format {
            Source::JsonObject => json!({"type": "object"}),
            Source::JsonSchema(text) => serde_json::from_str(text).ok()?,
            _ => return None,
        };
        if object.get("type") != Some(&Value::from("object")) {
            return None;
        }
        move_references(&mut object, "#/anyOf/0");
        // It says something only at a root.
        object.as_object_mut()?.remove("$schema");
        let either = json!({"anyOf": [object, self.list_of_calls(CALLS_AT)]});
        let source = Source::JsonSchema(either.to_string());
        Some(AskedGrammar { source, param: RESPONSE_FORMAT, calls_at: Some(CALLS_AT) })
    }
}
