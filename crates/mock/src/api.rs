//! The API's objects: what is read of a request, and what an answer looks like.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::script::Script;

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompt>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    min_tokens: Option<usize>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    Batch(Vec<Vec<u32>>),
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Deserialize, Default)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

/// A request, checked.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whether it is a chat.
    pub chat: bool,
    /// Characters that would have to be tokenized.
    pub prompt_chars: usize,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Bound of the answer's length.
    pub max_tokens: usize,
    /// Least length of the answer.
    pub min_tokens: usize,
    /// Whether the answer runs to `max_tokens` whatever the script says.
    pub ignore_eos: bool,
    /// Whether it is answered by events.
    pub stream: bool,
    /// Whether an event with the usage comes at the end.
    pub include_usage: bool,
    /// Whether every event carries the usage so far.
    pub continuous_usage: bool,
}

/// Why a request is refused: status and words.
pub type Refusal = (u16, String);

impl Request {
    /// What `/v1/completions` gives where a request has no `max_tokens`.
    const DEFAULT_MAX_TOKENS: usize = 16;

    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400 with the field, 404 for another model.
    pub fn parse(chat: bool, bytes: &[u8], script: &Script) -> Result<Self, Refusal> {
        let body: Body =
            serde_json::from_slice(bytes).map_err(|error| (400, format!("body: {error}")))?;
        refuse_fields(bytes, &script.refused_fields)?;
        if let Some(model) = body.model.as_ref().filter(|model| **model != script.model) {
            return Err((404, format!("model: {model:?} does not exist")));
        }
        if body.n.unwrap_or(1) != 1 {
            return Err((400, "n: only 1 is supported".to_owned()));
        }
        let (prompt_chars, prompt_tokens) = prompt_size(chat, &body, script)?;
        let max_tokens = body
            .max_completion_tokens
            .or(body.max_tokens)
            .unwrap_or(Self::DEFAULT_MAX_TOKENS.max(body.min_tokens.unwrap_or(0)));
        let min_tokens = body.min_tokens.unwrap_or(0);
        if max_tokens == 0 || min_tokens > max_tokens {
            return Err((400, "max_tokens: at least 1, and at least min_tokens".to_owned()));
        }
        if prompt_tokens.saturating_add(max_tokens) > script.max_model_len {
            let text = format!(
                "max_tokens: {prompt_tokens} of the prompt and {max_tokens} exceed {}",
                script.max_model_len
            );
            return Err((400, text));
        }
        let options = body.stream_options.unwrap_or_default();
        Ok(Self {
            chat,
            prompt_chars,
            prompt_tokens,
            max_tokens,
            min_tokens,
            ignore_eos: body.ignore_eos.unwrap_or(false),
            stream: body.stream.unwrap_or(false),
            include_usage: options.include_usage.unwrap_or(false),
            continuous_usage: options.continuous_usage_stats.unwrap_or(false),
        })
    }
}

/// Refuses the script's fields.
fn refuse_fields(bytes: &[u8], refused: &[String]) -> Result<(), Refusal> {
    if refused.is_empty() {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
    match refused.iter().find(|field| body.get(field.as_str()).is_some()) {
        Some(field) => Err((400, format!("{field}: not a field of this server"))),
        None => Ok(()),
    }
}

/// Characters and tokens of the prompt.
fn prompt_size(chat: bool, body: &Body, script: &Script) -> Result<(usize, usize), Refusal> {
    let of_text = |text: &str| {
        let chars = text.chars().count();
        (chars, chars.div_ceil(script.chars_per_token).max(1))
    };
    if chat {
        let Some(messages) = body.messages.as_ref().filter(|messages| !messages.is_empty()) else {
            return Err((400, "messages: at least one".to_owned()));
        };
        return Ok(of_text(&messages.iter().map(Message::text).collect::<String>()));
    }
    match &body.prompt {
        Some(Prompt::Text(text)) => Ok(of_text(text)),
        Some(Prompt::Texts(texts)) if texts.len() == 1 => Ok(of_text(&texts[0])),
        Some(Prompt::Ids(ids)) if !ids.is_empty() => Ok((0, ids.len())),
        Some(Prompt::Batch(batch)) if batch.len() == 1 && !batch[0].is_empty() => {
            Ok((0, batch[0].len()))
        }
        _ => Err((400, "prompt: one text, or one list of at least one id".to_owned())),
    }
}

impl Message {
    fn text(&self) -> String {
        match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).collect()
            }
            None => String::new(),
        }
    }
}

/// Writes the objects of one answer.
pub struct Answer {
    /// `cmpl-mock-7` or `chatcmpl-mock-7`, where 7 is the request's index.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// A token that is said twice.
    pub doubled: Option<usize>,
    /// What it answers.
    pub request: Request,
}

impl Answer {
    /// The object of `/v1/models`.
    pub fn models(script: &Script) -> Value {
        json!({"object": "list", "data": [{
            "id": script.model, "object": "model", "created": 0, "owned_by": "mock",
            "max_model_len": script.max_model_len,
        }]})
    }

    /// The text of tokens `from..to`: each is a blank and its number.
    pub fn text(&self, from: usize, to: usize) -> String {
        let times = |token| if self.doubled == Some(token) { 2 } else { 1 };
        (from..to).map(|token| format!(" {token}").repeat(times(token))).collect()
    }

    /// A chat's first event.
    pub fn role_event(&self) -> Value {
        let choice = json!({
            "index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null,
        });
        self.chunk(json!([choice]), self.usage_so_far(0))
    }

    /// An event with tokens `from..to`; the last of them is the answer's last if `finish` is set.
    pub fn token_event(&self, from: usize, to: usize, finish: Option<&str>) -> Value {
        let text = self.text(from, to);
        let choice = if self.request.chat {
            json!({"index": 0, "delta": {"content": text}, "finish_reason": finish})
        } else {
            json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish})
        };
        self.chunk(json!([choice]), self.usage_so_far(to))
    }

    /// The event with the usage, after the last token.
    pub fn usage_event(&self, tokens: usize) -> Value {
        self.chunk(json!([]), Some(self.usage(tokens)))
    }

    /// The answer in one piece.
    pub fn whole(&self, tokens: usize, finish: &str) -> Value {
        let text = self.text(0, tokens);
        let (object, choice) = if self.request.chat {
            let message = json!({"role": "assistant", "content": text});
            let choice = json!({"index": 0, "message": message, "finish_reason": finish});
            ("chat.completion", choice)
        } else {
            let choice =
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish});
            ("text_completion", choice)
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": [choice], "usage": self.usage(tokens),
        })
    }

    fn chunk(&self, choices: Value, usage: Option<Value>) -> Value {
        let object = if self.request.chat { "chat.completion.chunk" } else { "text_completion" };
        let mut chunk = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        chunk
    }

    fn usage_so_far(&self, tokens: usize) -> Option<Value> {
        self.request.continuous_usage.then(|| self.usage(tokens))
    }

    fn usage(&self, tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.request.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self.request.prompt_tokens + tokens,
        })
    }
}

/// An error's object.
pub fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": status}})
}
