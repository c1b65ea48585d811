//! The JSON body of a request.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Api, LoadError, Message, Prompt, Request, Target};

/// Which extensions of the API a server takes; found by asking, see [`Target::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    /// `stream_options.include_usage`: token counts at the end of a stream.
    pub usage: bool,
    /// `stream_options.continuous_usage_stats`: token counts with every event, so that tokens
    /// without text are seen too (vLLM, SGLang, TensorRT-LLM, Saccade).
    pub continuous_usage: bool,
    /// `ignore_eos` and `min_tokens`: exact output lengths.
    pub exact: bool,
}

impl Dialect {
    /// From all extensions to none, in the order in which they are given up.
    pub(crate) const LADDER: [Dialect; 4] = [
        Dialect { usage: true, continuous_usage: true, exact: true },
        Dialect { usage: true, continuous_usage: false, exact: true },
        Dialect { usage: true, continuous_usage: false, exact: false },
        Dialect { usage: false, continuous_usage: false, exact: false },
    ];

    /// What is missing, in words.
    pub(crate) fn notes(self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.exact {
            notes.push(
                "the server refuses ignore_eos and min_tokens: outputs may be shorter than asked"
                    .to_owned(),
            );
        }
        if !self.usage {
            notes.push(
                "the server refuses stream_options: output tokens are counted by events".to_owned(),
            );
        }
        notes
    }
}

/// Writes bodies for one server.
#[derive(Debug, Clone)]
pub(crate) struct BodyWriter {
    pub api: Api,
    pub model: String,
    pub dialect: Dialect,
    pub extra: Map<String, Value>,
}

impl BodyWriter {
    pub(crate) fn new(target: &Target, model: &str, dialect: Dialect) -> BodyWriter {
        let (api, extra) = (target.api, target.extra_body.clone());
        BodyWriter { api, model: model.into(), dialect, extra }
    }

    /// The body of a request.
    ///
    /// # Errors
    /// [`LoadError::Spec`] for token ids over the chat API.
    pub(crate) fn write(&self, request: &Request) -> Result<Bytes, LoadError> {
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        let (field, prompt) = prompt(self.api, &request.prompt)?;
        body.insert(field.into(), prompt);
        body.insert("max_tokens".into(), json!(request.max_tokens));
        body.insert("temperature".into(), json!(0));
        body.insert("stream".into(), json!(true));
        if self.dialect.usage {
            let mut options = json!({"include_usage": true});
            if self.dialect.continuous_usage {
                options["continuous_usage_stats"] = json!(true);
            }
            body.insert("stream_options".into(), options);
        }
        if request.exact && self.dialect.exact {
            body.insert("ignore_eos".into(), json!(true));
            body.insert("min_tokens".into(), json!(request.max_tokens));
        }
        for (field, value) in &self.extra {
            match value {
                Value::Null => drop(body.shift_remove(field)),
                value => drop(body.insert(field.clone(), value.clone())),
            }
        }
        Ok(Bytes::from(Value::Object(body).to_string()))
    }
}

fn prompt(api: Api, prompt: &Prompt) -> Result<(&'static str, Value), LoadError> {
    let chat = |messages: &[Message]| ("messages", json!(messages));
    Ok(match (api, prompt) {
        (Api::Completions, Prompt::Text(text)) => ("prompt", json!(text)),
        (Api::Completions, Prompt::Ids(ids)) => ("prompt", json!(ids)),
        (Api::Completions, Prompt::Messages(messages)) => {
            let texts: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
            ("prompt", json!(texts.join("\n\n")))
        }
        (Api::Chat, Prompt::Messages(messages)) => chat(messages),
        (Api::Chat, Prompt::Text(text)) => {
            chat(&[Message { role: "user".into(), content: text.clone() }])
        }
        (Api::Chat, Prompt::Ids(_)) => {
            let problem = "token ids need the completions API: the chat API takes text";
            return Err(LoadError::spec("prompt form", problem));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(api: Api, dialect: Dialect, extra: Value, prompt: Prompt) -> Value {
        let mut target = Target::new("http://x");
        target.api = api;
        target.extra_body = extra.as_object().cloned().unwrap_or_default();
        let request = Request { prompt, max_tokens: 7, exact: true };
        let bytes = BodyWriter::new(&target, "m", dialect).write(&request).expect("writable");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn extensions_are_sent_to_those_who_know_them() {
        let [all, .., none] = Dialect::LADDER;
        let body = written(Api::Completions, all, json!({}), Prompt::Ids(vec![1, 2]));
        assert_eq!(body["prompt"], json!([1, 2]));
        assert_eq!((&body["ignore_eos"], &body["min_tokens"]), (&json!(true), &json!(7)));
        assert_eq!(body["stream_options"]["continuous_usage_stats"], json!(true));
        let body = written(Api::Chat, none, json!({}), Prompt::Text("hi".into()));
        assert_eq!(body["messages"], json!([{"role": "user", "content": "hi"}]));
        let absent = ["ignore_eos", "min_tokens", "stream_options"];
        assert!(absent.iter().all(|field| body.get(field).is_none()), "{body}");
    }

    #[test]
    fn extra_fields_win_and_null_removes() {
        let extra = json!({"temperature": null, "top_k": 5, "max_tokens": 9});
        let body = written(Api::Completions, Dialect::LADDER[0], extra, Prompt::Text("a".into()));
        assert!(body.get("temperature").is_none());
        assert_eq!((&body["top_k"], &body["max_tokens"]), (&json!(5), &json!(9)));
    }
}
