//! One event of a streamed completion: does it bring a token, how many are there by now?

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Outcome;

/// What an event says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// It brings text: of the answer, of the reasoning before it, or of a tool call.
    pub content: bool,
    /// It has a choice; the last event with the usage alone has none.
    pub choice: bool,
    /// It says why the answer ended.
    pub finished: bool,
    /// The server's count of prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// The server's count of output tokens so far.
    pub output_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<serde_json::Value>,
    #[serde(borrow, default)]
    object: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    /// vLLM before 0.12, SGLang, llama.cpp, DeepSeek.
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    /// vLLM, OpenRouter.
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    refusal: Option<Cow<'a, str>>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u32>,
    #[serde(default)]
    completion_tokens: Option<u32>,
}

impl Choice<'_> {
    fn has_content(&self) -> bool {
        let filled = |text: &Option<Cow<str>>| text.as_ref().is_some_and(|t| !t.is_empty());
        filled(&self.text)
            || self.delta.as_ref().is_some_and(|d| {
                filled(&d.content)
                    || filled(&d.reasoning_content)
                    || filled(&d.reasoning)
                    || filled(&d.refusal)
                    || d.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
            })
    }
}

impl Event {
    /// Reads the data of an event. The error is what the server says went wrong
    /// ([`Outcome::ErrorEvent`]), or what is wrong with the event ([`Outcome::Broken`]).
    pub(crate) fn parse(name: &[u8], data: &[u8]) -> Result<Event, Outcome> {
        let said = |words: String| Err(Outcome::ErrorEvent(words));
        if name == b"error" {
            return said(message_in(data));
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|e| {
            Outcome::Broken(format!("an event is not a completion ({e}): {}", excerpt(data)))
        })?;
        if chunk.error.is_some() {
            return said(message_in(data));
        }
        if chunk.object.as_deref() == Some("error") {
            return said(chunk.message.map_or_else(|| excerpt(data), Cow::into_owned));
        }
        let choices = chunk.choices.unwrap_or_default();
        let (prompt_tokens, output_tokens) =
            chunk.usage.map_or((None, None), |u| (u.prompt_tokens, u.completion_tokens));
        Ok(Event {
            content: choices.iter().any(Choice::has_content),
            choice: !choices.is_empty(),
            finished: choices.iter().any(|c| c.finish_reason.is_some()),
            prompt_tokens,
            output_tokens,
        })
    }
}

/// The message within an error's JSON, in the forms that servers give it; else all of it.
pub(crate) fn message_in(data: &[u8]) -> String {
    let parsed: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
    let places = [&parsed["error"]["message"], &parsed["error"], &parsed["message"]];
    let message = places.into_iter().find_map(|place| place.as_str());
    excerpt(message.map_or(data, str::as_bytes))
}

/// The beginning of a server's words, for people.
pub(crate) fn excerpt(data: &[u8]) -> String {
    const MAX: usize = 300;
    let text = String::from_utf8_lossy(data);
    let mut short: String = text.chars().take(MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(data: &str) -> Event {
        Event::parse(b"", data.as_bytes()).expect("a completion")
    }

    #[test]
    fn content_in_all_its_places() {
        let with = [
            r#"{"choices":[{"text":" a","finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"content":"\u00e9\n"}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
        ];
        for data in with {
            assert!(parse(data).content, "{data}");
        }
        let without = [
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null}}],"usage":null}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
            r#"{"choices":null}"#,
            r#"{"choices":[{"text":"","finish_reason":"length"}]}"#,
        ];
        for data in without {
            assert!(!parse(data).content, "{data}");
        }
    }

    #[test]
    fn counts_and_ends() {
        let last = parse(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#);
        assert_eq!((last.prompt_tokens, last.output_tokens), (Some(3), Some(4)));
        assert!(!last.choice);
        assert!(parse(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#).finished);
        assert!(!parse(r#"{"choices":[{"text":"a","finish_reason":null}]}"#).finished);
    }

    #[test]
    fn errors_in_their_forms() {
        let wrong: [(&[u8], &[u8], &str); 4] = [
            (b"", br#"{"error":{"message":"no room"}}"#, "no room"),
            (b"", br#"{"object":"error","message":"no room"}"#, "no room"),
            (b"error", b"no room", "no room"),
            (b"", b"<html>", "not a completion"),
        ];
        for (name, data, word) in wrong {
            let error = Event::parse(name, data).expect_err("an error");
            let (Outcome::ErrorEvent(words) | Outcome::Broken(words)) = &error else {
                panic!("{error:?}");
            };
            assert!(words.contains(word), "{words}");
            assert_eq!(matches!(error, Outcome::ErrorEvent(_)), word == "no room", "{words}");
        }
    }
}
