//! Bodies of attackers' requests.

use saccade_load::Api;
use serde_json::{Map, Value, json};

/// Ids that every vocabulary has and that are no special tokens: bytes and common pieces.
const IDS: std::ops::Range<u64> = 300..1000;
/// Words that are about one token each.
const WORDS: [&str; 16] = [
    "the", "of", "and", "to", "in", "is", "was", "for", "that", "with", "as", "his", "he", "be",
    "not", "by",
];

/// What the prompts are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Token ids: exact lengths.
    Ids,
    /// Words, about one token each.
    Words,
}

impl Form {
    /// In a result.
    pub fn name(self) -> &'static str {
        match self {
            Form::Ids => "token ids",
            Form::Words => "words",
        }
    }
}

/// Numbers that differ from request to request: splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// Below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// Writes bodies for one server.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    pub api: Api,
    pub path: String,
    pub model: String,
    pub form: Form,
}

/// What one request asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    pub prompt_tokens: usize,
    pub output_tokens: i64,
    pub logprobs: i64,
    pub stream: bool,
    /// Further fields.
    pub fields: Map<String, Value>,
}

impl Bodies {
    /// A body whose prompt no other request has.
    pub fn write(&self, ask: &Ask, draw: &mut Draw) -> Vec<u8> {
        let mut body = json!({
            "model": self.model, "max_tokens": ask.output_tokens, "stream": ask.stream,
            "temperature": 0,
        });
        match self.api {
            Api::Chat => {
                let text = words(ask.prompt_tokens, draw);
                body["messages"] = json!([{"role": "user", "content": text}]);
                if ask.logprobs > 0 {
                    body["logprobs"] = json!(true);
                    body["top_logprobs"] = json!(ask.logprobs);
                }
            }
            Api::Completions => {
                body["prompt"] = match self.form {
                    Form::Ids => json!(ids(ask.prompt_tokens, draw)),
                    Form::Words => json!(words(ask.prompt_tokens, draw)),
                };
                if ask.logprobs > 0 {
                    body["logprobs"] = json!(ask.logprobs);
                }
            }
        }
        for (field, value) in &ask.fields {
            body[field] = value.clone();
        }
        body.to_string().into_bytes()
    }
}

fn ids(count: usize, draw: &mut Draw) -> Vec<u64> {
    (0..count).map(|_| IDS.start + draw.below(IDS.end - IDS.start)).collect()
}

fn words(count: usize, draw: &mut Draw) -> String {
    let word = |_| WORDS[draw.below(WORDS.len() as u64) as usize];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

/// A text of this many bytes, of words.
pub(super) fn text(bytes: usize, draw: &mut Draw) -> String {
    let mut text = String::with_capacity(bytes + 8);
    while text.len() < bytes {
        text.push_str(WORDS[draw.below(WORDS.len() as u64) as usize]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_what_is_asked_and_prompts_differ() {
        let mut bodies = Bodies {
            api: Api::Completions,
            path: Api::Completions.path().into(),
            model: "m".into(),
            form: Form::Ids,
        };
        let mut ask = Ask { prompt_tokens: 7, output_tokens: 5, logprobs: 3, ..Ask::default() };
        ask.fields.insert("n".into(), json!(4));
        let mut draw = Draw::new(1);
        let mut written = |bodies: &Bodies| -> Value {
            serde_json::from_slice(&bodies.write(&ask, &mut draw)).unwrap()
        };
        let (first, second) = (written(&bodies), written(&bodies));
        assert_eq!(first["prompt"].as_array().unwrap().len(), 7);
        assert_ne!(first["prompt"], second["prompt"]);
        assert_eq!((&first["max_tokens"], &first["logprobs"]), (&json!(5), &json!(3)));
        assert_eq!(first["n"], 4);
        bodies.api = Api::Chat;
        let chat = written(&bodies);
        assert_eq!((&chat["logprobs"], &chat["top_logprobs"]), (&json!(true), &json!(3)));
        let content = chat["messages"][0]["content"].as_str().unwrap();
        assert_eq!(content.split(' ').count(), 7);
        assert_eq!(text(1000, &mut draw).len(), 1000);
    }
}
