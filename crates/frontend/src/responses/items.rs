//! The items of `input` as messages of a chat.

use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::limits::{MAX_MESSAGES, MAX_TOOL_CALL_ID_BYTES};
use crate::validate::tools::take_call;
use crate::validate::{cut, read_json, read_list};

/// The conversation that a request has.
#[derive(Debug, Default)]
pub struct Conversation {
    /// Messages of a chat.
    pub messages: Vec<Value>,
    /// What each of them was made of.
    pub origins: Vec<Origin>,
    /// The last message is a turn of the assistant's that more items can be part of.
    is_open: bool,
}

/// What a message was made of; a turn that several items are parts of is named by its first.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    /// `instructions`
    Instructions,
    /// `input`, which is a text.
    Input,
    /// An item of `input`.
    Item(usize),
}

impl Origin {
    /// The field's name.
    pub fn name(self) -> String {
        match self {
            Self::Instructions => "instructions".into(),
            Self::Input => "input".into(),
            Self::Item(index) => format!("input[{index}]"),
        }
    }
}

impl Conversation {
    /// Reads `instructions` and `input`.
    ///
    /// # Errors
    /// 400 that names the item.
    pub fn read(instructions: Option<&str>, input: &str) -> Result<Self, ApiError> {
        let mut conversation = Self::default();
        if let Some(text) = instructions {
            conversation.say(Origin::Instructions, json!({"role": "system", "content": text}));
        }
        if input.starts_with('"') {
            let text: String = read_json("input", input)?;
            conversation.say(Origin::Input, json!({"role": "user", "content": text}));
            return Ok(conversation);
        }
        if !input.starts_with('[') {
            return Err(ApiError::must_be("input", "a string or a list of items"));
        }
        let items: Vec<Value> = read_list("input", input, MAX_MESSAGES)?;
        if items.is_empty() {
            return Err(ApiError::invalid("input", "`input` must not be empty"));
        }
        for (index, item) in items.iter().enumerate() {
            conversation.add(index, item)?;
        }
        // A turn of nothing but reasoning says nothing.
        let says = |message: &Value| has_calls(message) || !message["content"].is_null();
        for message in conversation.messages.iter_mut().filter(|message| !says(message)) {
            message["content"] = "".into();
        }
        Ok(conversation)
    }

    fn add(&mut self, index: usize, item: &Value) -> Result<(), ApiError> {
        let at = Origin::Item(index).name();
        if !item.is_object() {
            return Err(ApiError::must_be(&at, "an object"));
        }
        match &item["type"] {
            Value::Null => self.add_message(index, item),
            Value::String(kind) => match kind.as_str() {
                "message" => self.add_message(index, item),
                "reasoning" => self.add_reasoning(index, item),
                "function_call" => self.add_call(index, item),
                "function_call_output" => self.add_output(index, item),
                _ => Err(unsupported(
                    &format!("{at}.type"),
                    "message, reasoning, function_call and function_call_output",
                    kind,
                )),
            },
            _ => Err(ApiError::must_be(&format!("{at}.type"), "a string")),
        }
    }

    fn add_message(&mut self, index: usize, item: &Value) -> Result<(), ApiError> {
        let at = Origin::Item(index).name();
        let texts = texts(&format!("{at}.content"), &item["content"])?;
        match item["role"].as_str() {
            Some("user") => {
                self.say(Origin::Item(index), json!({"role": "user", "content": parts(texts)}));
            }
            // Few templates know the newer name of the role.
            Some("system" | "developer") => self.instruct(index, texts),
            Some("assistant") => {
                let text = texts.concat();
                let joins = |turn: &Value| turn["content"].is_null() || has_calls(turn);
                append(&mut self.turn(index, joins)["content"], &text);
            }
            _ => {
                let roles = "\"user\", \"assistant\", \"system\" or \"developer\"";
                return Err(ApiError::must_be(&format!("{at}.role"), roles));
            }
        }
        Ok(())
    }

    /// Instructions at the beginning are one message, because many templates take no second one.
    fn instruct(&mut self, index: usize, texts: Vec<String>) {
        let text = texts.join("\n");
        match self.messages.as_mut_slice() {
            [first] if first["role"] == "system" => {
                append(&mut first["content"], &format!("\n\n{text}"));
            }
            _ => self.say(Origin::Item(index), json!({"role": "system", "content": text})),
        }
    }

    /// What a model thought. A summary is not what it thought, and what another server encrypted
    /// cannot be read here: such an item is left out.
    fn add_reasoning(&mut self, index: usize, item: &Value) -> Result<(), ApiError> {
        let at = format!("input[{index}].content");
        let text = match &item["content"] {
            Value::Null => return Ok(()),
            content => texts(&at, content)?.concat(),
        };
        if text.is_empty() {
            return Ok(());
        }
        let joins = |turn: &Value| turn["content"].is_null() || has_calls(turn);
        append(&mut self.turn(index, joins)["reasoning_content"], &text);
        Ok(())
    }

    fn add_call(&mut self, index: usize, item: &Value) -> Result<(), ApiError> {
        let at = Origin::Item(index).name();
        let id = call_id(&at, item)?;
        if !item["arguments"].is_string() {
            return Err(ApiError::must_be(&format!("{at}.arguments"), "a string"));
        }
        let call = json!({
            "id": id,
            "type": "function",
            "function": {"name": item["name"], "arguments": item["arguments"]},
        });
        let call = take_call(&at, call).map_err(|mut error| {
            error.param = error.param.map(|param| param.replacen(".function", "", 1));
            error.message = error.message.replacen(".function", "", 1);
            error
        })?;
        let turn = self.turn(index, |_| true);
        match turn["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => turn["tool_calls"] = vec![call].into(),
        }
        Ok(())
    }

    fn add_output(&mut self, index: usize, item: &Value) -> Result<(), ApiError> {
        let at = Origin::Item(index).name();
        let id = call_id(&at, item)?;
        let output = parts(texts(&format!("{at}.output"), &item["output"])?);
        let message = json!({"role": "tool", "tool_call_id": id, "content": output});
        self.say(Origin::Item(index), message);
        Ok(())
    }

    fn say(&mut self, origin: Origin, message: Value) {
        self.is_open = false;
        self.messages.push(message);
        self.origins.push(origin);
    }

    /// The turn of the assistant's that an item is part of: the last one if the item joins it.
    fn turn(&mut self, index: usize, joins: impl Fn(&Value) -> bool) -> &mut Value {
        if !self.is_open || !self.messages.last().is_some_and(joins) {
            self.say(Origin::Item(index), json!({"role": "assistant"}));
            self.is_open = true;
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

/// Adds to a text, or begins it: thousands of items can be parts of one.
fn append(text: &mut Value, more: &str) {
    match text {
        Value::String(text) => text.push_str(more),
        other => *other = more.into(),
    }
}

/// What comes behind a call is of the same turn, up to the results.
fn has_calls(turn: &Value) -> bool {
    turn.get("tool_calls").is_some()
}

fn call_id<'a>(at: &str, item: &'a Value) -> Result<&'a str, ApiError> {
    let id = item["call_id"].as_str();
    id.filter(|id| (1..=MAX_TOOL_CALL_ID_BYTES).contains(&id.len())).ok_or_else(|| {
        let what = format!("a string of 1 to {MAX_TOOL_CALL_ID_BYTES} bytes");
        ApiError::must_be(&format!("{at}.call_id"), &what)
    })
}

/// One text as it is, several as the parts of a content.
fn parts(texts: Vec<String>) -> Value {
    match <[String; 1]>::try_from(texts) {
        Ok([text]) => text.into(),
        Err(texts) => texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect(),
    }
}

/// The texts of a content: a string, or parts that are texts.
fn texts(at: &str, content: &Value) -> Result<Vec<String>, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(vec![text.clone()]),
        Value::Array(parts) => parts,
        _ => return Err(ApiError::must_be(at, "a string or a list of parts")),
    };
    let text = |(index, part): (usize, &Value)| {
        let at = format!("{at}[{index}]");
        let field = match part["type"].as_str() {
            Some("input_text" | "output_text" | "reasoning_text" | "text") => "text",
            Some("refusal") => "refusal",
            Some(kind) => {
                let kinds = "input_text, output_text, reasoning_text and refusal";
                return Err(unsupported(&format!("{at}.type"), kinds, kind));
            }
            None => return Err(ApiError::must_be(&format!("{at}.type"), "a string")),
        };
        let text = part[field].as_str().map(str::to_owned);
        text.ok_or_else(|| ApiError::must_be(&format!("{at}.{field}"), "a string"))
    };
    parts.iter().enumerate().map(text).collect()
}

/// 400: a kind of this API that this server does not take.
pub fn unsupported(param: &str, kinds: &str, got: &str) -> ApiError {
    let message = format!("`{param}`: this server supports {kinds}, got `{}`", cut(got));
    ApiError { message, ..ApiError::unsupported(param) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(input: Value) -> Vec<Value> {
        Conversation::read(Some("Be brief."), &input.to_string()).unwrap().messages
    }

    #[test]
    fn the_items_of_an_answer_are_one_turn() {
        let call = |id: &str| {
            json!({"type": "function_call", "call_id": id, "name": "f",
                   "arguments": "{\"a\": 1}"})
        };
        let output =
            |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "done"});
        let thought =
            json!({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]});
        let text = json!({"role": "assistant", "content": [{"type": "output_text", "text": "I."}]});
        let items = json!([
            {"role": "developer", "content": "And kind."}, {"role": "user", "content": "Hi"},
            thought, text, call("1"), call("2"), output("1"), output("2"), call("3"), output("3"),
            text, text, {"role": "system", "content": "Stop."},
        ]);
        let called = |id: &str| {
            json!({"id": id, "type": "function",
                   "function": {"name": "f", "arguments": {"a": 1}}})
        };
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "done"});
        let expected = [
            json!({"role": "system", "content": "Be brief.\n\nAnd kind."}),
            json!({"role": "user", "content": "Hi"}),
            json!({"role": "assistant", "reasoning_content": "Hm.", "content": "I.",
                   "tool_calls": [called("1"), called("2")]}),
            result("1"),
            result("2"),
            json!({"role": "assistant", "tool_calls": [called("3")]}),
            result("3"),
            json!({"role": "assistant", "content": "I."}),
            json!({"role": "assistant", "content": "I."}),
            json!({"role": "system", "content": "Stop."}),
        ];
        assert_eq!(messages(items), expected);
    }

    #[test]
    fn reasoning_without_a_text_is_left_out() {
        let summary = json!([{"type": "summary_text", "text": "It thought."}]);
        let items = json!([{"role": "user", "content": "Hi"},
                           {"type": "reasoning", "summary": summary, "encrypted_content": "xyz"}]);
        assert_eq!(messages(items).len(), 2);
    }
}
