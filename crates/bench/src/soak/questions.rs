//! Questions whose answers are known, and the judgement of an answer.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use saccade_load::{Api, Session, StreamEnd, Target};
use serde_json::{Value, json};

use super::record::End;
use crate::attackers::Draw;

/// Words of the questions.
const WORDS: [&str; 12] = [
    "in",
    "the",
    "beginning",
    "there",
    "was",
    "light",
    "and",
    "people",
    "said",
    "that",
    "all",
    "day",
];

/// How much of an answer can be compared, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    TokenIds,
    Tokens,
    Text,
}

impl Detail {
    pub fn name(self) -> &'static str {
        match self {
            Detail::TokenIds => "token ids",
            Detail::Tokens => "tokens",
            Detail::Text => "text",
        }
    }
}

/// What was heard of one answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub tokens: Vec<String>,
    pub text: String,
    pub finish: Option<String>,
    pub error: Option<String>,
}

impl Heard {
    /// Takes in the data of one event.
    pub fn event(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(data) else { return };
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            let message = error["message"].as_str().map(str::to_owned);
            self.error = Some(message.unwrap_or_else(|| error.to_string()));
            return;
        }
        let choice = &event["choices"][0];
        let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
        self.text.push_str(text.unwrap_or_default());
        let logprobs = &choice["logprobs"];
        let words = |values: &Value, field: Option<&str>| -> Vec<String> {
            let all = values.as_array().map(Vec::as_slice).unwrap_or_default();
            let of = |value: &Value| match field {
                Some(field) => value[field].as_str().map(str::to_owned),
                None => value.as_str().map(str::to_owned),
            };
            all.iter().filter_map(of).collect()
        };
        self.tokens.extend(words(&logprobs["tokens"], None));
        self.tokens.extend(words(&logprobs["content"], Some("token")));
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
    }

    /// Whether it is how `known` begins.
    fn begins(&self, known: &Heard) -> bool {
        known.text.starts_with(&self.text) && known.tokens.starts_with(&self.tokens)
    }

    /// Where it differs from `known`, in words.
    fn difference(&self, known: &Heard) -> String {
        let same = self.tokens.iter().zip(&known.tokens).take_while(|(a, b)| a == b).count();
        format!(
            "{} of {} tokens, the first {same} as known, then {:?} where {:?} is known; text {:?}, \
             known {:?}; finish {:?}, known {:?}",
            self.tokens.len(),
            known.tokens.len(),
            self.tokens.get(same),
            known.tokens.get(same),
            clipped(&self.text),
            clipped(&known.text),
            self.finish,
            known.finish
        )
    }
}

fn clipped(text: &str) -> String {
    const SHOWN: usize = 200;
    text.chars().take(SHOWN).collect()
}

/// The judgement of a request: how it ended, and what to say of it.
pub(super) fn judge(
    heard: &Heard,
    ended: &StreamEnd,
    known: &Heard,
    was_killed: bool,
) -> (End, String) {
    let is_whole = *ended == StreamEnd::Whole && heard.finish.is_some() && heard.error.is_none();
    let right = if is_whole { heard == known } else { heard.begins(known) };
    if !right {
        return (End::Wrong, heard.difference(known));
    }
    match ended {
        _ if is_whole => (End::Right, String::new()),
        _ if heard.error.is_some() => (End::ErrorEvent, heard.error.clone().unwrap_or_default()),
        StreamEnd::Refused(status, why) => (End::Refused, format!("HTTP {status}: {why}")),
        StreamEnd::NotConnected(why) => (End::NotConnected, why.clone()),
        StreamEnd::TimedOut => {
            (End::Hung, format!("after {} characters of the answer", heard.text.len()))
        }
        StreamEnd::Broken(why) if was_killed => (End::BrokenByKill, why.clone()),
        StreamEnd::Broken(why) => (End::Unexplained, why.clone()),
        StreamEnd::Whole => {
            (End::Unexplained, "it ended without a finish_reason or an error".to_owned())
        }
    }
}

/// A request and its known answer.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub body: Vec<u8>,
    pub known: Heard,
}

/// Where the questions go.
pub(super) fn path(target: &Target) -> &str {
    target.endpoint.as_deref().unwrap_or(target.api.path())
}

/// Asks every question twice while nothing else asks.
///
/// # Errors
/// The server does not answer one, or not twice the same.
pub(super) async fn learn(
    target: &Target,
    count: usize,
    seed: u64,
    timeout: Duration,
) -> anyhow::Result<(Vec<Question>, Detail)> {
    let session = Session::new(target, 0, timeout).await?;
    let detail = detail(&session, target).await?;
    let mut questions = Vec::with_capacity(count);
    for number in 0..count {
        let body = body(target, detail, number, seed);
        let known = ask(&session, target, &body).await?;
        let again = ask(&session, target, &body).await?;
        ensure!(
            known == again,
            "the server gives two answers to one greedy question: {}",
            again.difference(&known)
        );
        questions.push(Question { body, known });
    }
    Ok((questions, detail))
}

/// Asks one question, whose whole answer must come.
pub(super) async fn ask(session: &Session, target: &Target, body: &[u8]) -> anyhow::Result<Heard> {
    let mut heard = Heard::default();
    let ended = session.stream(path(target), body.to_vec().into(), |data| heard.event(data)).await;
    ensure!(
        ended == StreamEnd::Whole && heard.finish.is_some(),
        "a question is not answered: {ended:?} {}",
        heard.error.unwrap_or_default()
    );
    Ok(heard)
}

/// The most detail that the server gives.
async fn detail(session: &Session, target: &Target) -> anyhow::Result<Detail> {
    let mut refusal = None;
    for detail in [Detail::TokenIds, Detail::Tokens, Detail::Text] {
        match ask(session, target, &body(target, detail, 0, 0)).await {
            Ok(heard) if detail == Detail::Text || !heard.tokens.is_empty() => return Ok(detail),
            Ok(_) => {}
            Err(error) => refusal = Some(error),
        }
    }
    refusal.map_or_else(|| bail!("no answer"), Err).context("the first question")
}

/// Question `number`: a prompt of its own, greedy, with an answer of 8 to 71 tokens.
fn body(target: &Target, detail: Detail, number: usize, seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed.wrapping_add(number as u64));
    let words = 4 + draw.below(60) as usize;
    let word = |_| WORDS[draw.below(WORDS.len() as u64) as usize];
    let text: Vec<&str> = (0..words).map(word).collect();
    let text = format!("Chapter {number}: {}", text.join(" "));
    let tokens = 8 + (number * 13) % 64;
    let mut body = json!({
        "model": target.model, "max_tokens": tokens, "temperature": 0, "stream": true,
    });
    let has_logprobs = detail != Detail::Text;
    match target.api {
        Api::Chat => {
            body["messages"] = json!([{"role": "user", "content": text}]);
            if has_logprobs {
                body["logprobs"] = json!(true);
            }
        }
        Api::Completions => {
            body["prompt"] = json!(text);
            if has_logprobs {
                body["logprobs"] = json!(1);
            }
        }
    }
    if detail == Detail::TokenIds {
        body["return_tokens_as_token_ids"] = json!(true);
    }
    if target.dialect.is_some_and(|dialect| dialect.exact) {
        body["ignore_eos"] = json!(true);
    }
    body.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(tokens: &[&str], finish: Option<&str>) -> Heard {
        let mut heard = Heard::default();
        for token in tokens {
            let event = json!({"choices": [{"text": token, "logprobs": {"tokens": [token]}}]});
            heard.event(event.to_string().as_bytes());
        }
        heard.finish = finish.map(str::to_owned);
        heard
    }

    #[test]
    fn a_token_that_is_lost_doubled_or_wrong_is_told_from_a_part() {
        let known = heard(&["a", "b", "c"], Some("length"));
        let whole = StreamEnd::Whole;
        let broken = StreamEnd::Broken("reset".into());
        let failed = |tokens: &[&str]| Heard {
            error: Some("the device was restarted".into()),
            ..heard(tokens, None)
        };
        for (answer, ended, killed, end) in [
            (known.clone(), &whole, false, End::Right),
            (heard(&["a", "b"], Some("length")), &whole, false, End::Wrong),
            (heard(&["a", "b", "b", "c"], Some("length")), &whole, false, End::Wrong),
            (heard(&["a", "b", "c"], Some("stop")), &whole, false, End::Wrong),
            (heard(&["a", "b"], None), &whole, true, End::Unexplained),
            (failed(&["a", "b"]), &whole, true, End::ErrorEvent),
            (failed(&["a", "c"]), &whole, true, End::Wrong),
            (heard(&["a"], None), &broken, true, End::BrokenByKill),
            (heard(&["a"], None), &broken, false, End::Unexplained),
            (heard(&["b"], None), &broken, true, End::Wrong),
            (heard(&[], None), &StreamEnd::TimedOut, true, End::Hung),
            (heard(&[], None), &StreamEnd::Refused(503, String::new()), true, End::Refused),
        ] {
            let (judged, words) = judge(&answer, ended, &known, killed);
            assert_eq!(judged, end, "{answer:?} {ended:?}: {words}");
        }
    }

    #[test]
    fn questions_differ_and_chat_answers_are_read() {
        let target = Target { model: Some("m".into()), ..Target::new("http://x") };
        assert_ne!(body(&target, Detail::Text, 0, 1), body(&target, Detail::Text, 1, 1));
        let mut heard = Heard::default();
        let event = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop",
            "logprobs": {"content": [{"token": "x"}]}}]});
        heard.event(event.to_string().as_bytes());
        heard.event(b"[DONE]");
        assert_eq!((heard.text.as_str(), heard.tokens.len()), ("x", 1));
        assert_eq!(heard.finish.as_deref(), Some("stop"));
    }
}
