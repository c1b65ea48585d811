//! Tool calls and reasoning in chat answers.

use saccade_parsers::{Event, ToolFormat};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::api_error::ApiError;

/// Ids of the calls of one request.
pub struct CallIds {
    seed: u64,
    format: Option<ToolFormat>,
}

impl CallIds {
    /// Ids that no other request has.
    ///
    /// # Errors
    /// 500 if the system gives no random number.
    pub fn new(format: Option<ToolFormat>) -> Result<Self, ApiError> {
        let seed = getrandom::u64().map_err(|e| ApiError::internal(format!("no call ids: {e}")))?;
        Ok(Self { seed, format })
    }

    /// Of the `call`-th of a choice.
    pub fn id(&self, choice: usize, call: usize) -> String {
        let name = format!("{}/{choice}/{call}", self.seed);
        let digest = Sha256::digest(name.as_bytes());
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        match self.format {
            // Mistral's templates take an id of exactly nine letters and digits back.
            Some(ToolFormat::Mistral) => hex[..9].to_owned(),
            _ => format!("call_{hex}"),
        }
    }
}

/// A call of the whole answer.
#[derive(Debug, Serialize)]
pub struct Call {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

/// Some of a call, in a chunk.
#[derive(Debug, Serialize)]
pub struct CallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Debug, Serialize)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

/// How far the calls of a choice are.
#[derive(Debug, Default)]
pub struct CallCount {
    begun: usize,
    is_open: bool,
}

impl CallCount {
    /// There are calls, and the last one is whole.
    pub fn are_whole(&self) -> bool {
        self.begun > 0 && !self.is_open
    }
}

/// What the events of one delta say.
#[derive(Debug, Default)]
pub struct Said {
    /// What the model thought.
    pub reasoning: String,
    /// Text of the answer.
    pub text: String,
    /// Calls, or pieces of them.
    pub calls: Vec<CallDelta>,
}

impl Said {
    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }

    /// Reads the events of choice `choice`; `count` goes on with them.
    pub fn of(events: Vec<Event>, count: &mut CallCount, ids: &CallIds, choice: usize) -> Self {
        let mut said = Self::default();
        for event in events {
            match event {
                Event::Reasoning(text) => said.reasoning.push_str(&text),
                Event::Text(text) => said.text.push_str(&text),
                Event::Call(name) => {
                    let index = count.begun;
                    count.begun += 1;
                    count.is_open = true;
                    said.calls.push(CallDelta {
                        index,
                        id: Some(ids.id(choice, index)),
                        kind: Some("function"),
                        function: FunctionDelta { name: Some(name), arguments: String::new() },
                    });
                }
                Event::Arguments(text) => said.argue(&text, count.begun.saturating_sub(1)),
                Event::CallEnd => count.is_open = false,
            }
        }
        said
    }

    fn argue(&mut self, text: &str, index: usize) {
        match self.calls.last_mut() {
            Some(call) => call.function.arguments.push_str(text),
            None => self.calls.push(CallDelta {
                index,
                id: None,
                kind: None,
                function: FunctionDelta { name: None, arguments: text.to_owned() },
            }),
        }
    }
}

/// Adds pieces to the calls of the whole answer.
pub fn gather(calls: &mut Vec<Call>, pieces: Vec<CallDelta>) {
    for piece in pieces {
        let FunctionDelta { name, arguments } = piece.function;
        match (piece.id, name, calls.get_mut(piece.index)) {
            (Some(id), Some(name), None) => {
                calls.push(Call { id, kind: "function", function: Function { name, arguments } });
            }
            (_, _, Some(call)) => call.function.arguments.push_str(&arguments),
            // The first piece of a call has its name.
            (_, _, None) => {}
        }
    }
}
