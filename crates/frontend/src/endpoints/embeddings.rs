//! `POST /v1/embeddings`

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;

use super::generate::{ask, prepare_all};
use super::pieces::{in_pieces, push_quoted};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::openai::{Head, Usage};
use crate::serving::{Embedded, EmbeddingForm, PromptSource, embed};
use crate::validate::EmbeddingsRequest;

/// Values in one piece of an answer: some ten microseconds as base64, a hundred as numbers. A
/// multiple of 3, so that pieces of base64 end where its groups do.
const PIECE_VALUES: usize = 1536;

/// A vector for each input: the hidden state of its last token behind the final norm.
pub async fn embeddings(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut asked = ask(&app, request, EmbeddingsRequest::read).await?;
    let size = embedding_size(&app)?;
    let EmbeddingsRequest { dimensions, normalize, base64, .. } = asked.body;
    let config = &app.serving.assets.embedding;
    let form = EmbeddingForm::of(config, size, dimensions, normalize)?;
    check_slots(&app, asked.body.inputs.len())?;
    asked.tell("embeddings", &asked.body.params);
    let head = asked.head("embd-", &asked.body.params);
    let sources = asked.body.inputs.drain(..).map(PromptSource::Embedding).collect();
    let params = &asked.body.params;
    let (prompts, admission) = prepare_all(&app, &asked.tenant, sources, params, false).await?;
    let tokens: usize = prompts.iter().map(|prompt| prompt.ids.len()).sum();
    // Twice: where they arrive, and where they wait for the others.
    let vectors = 2 * prompts.len() * size as usize * size_of::<f32>();
    asked.charge.cover(&app.memory, tokens * size_of::<u32>() + vectors)?;
    let counted = (admission, asked.tally);
    let embedded = embed(&app.serving, &prompts, (params, form), asked.arrived, counted).await?;
    let answer = Answer { head, embedded, base64, at: At::Head };
    Ok(in_pieces(answer, app.serving.lanes.long(), asked.charge, asked.in_flight))
}

/// Values that the device gives.
fn embedding_size(app: &App) -> Result<u32, ApiError> {
    match app.serving.port.device().embedding_size {
        0 => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "embeddings_unsupported",
            "this server gives no embeddings: its device computes none (--device cpu does), or \
             --out-ring-words leaves no room for one",
        )),
        size => Ok(size),
    }
}

/// Each input takes a slot.
fn check_slots(app: &App, inputs: usize) -> Result<(), ApiError> {
    let slots = app.serving.port.num_slots();
    if inputs <= slots {
        return Ok(());
    }
    let message =
        format!("`input` must have at most {slots} inputs (slots of this server), got {inputs}");
    Err(ApiError::invalid("input", message))
}

/// The answer, piece by piece.
struct Answer {
    head: Head,
    embedded: Embedded,
    base64: bool,
    at: At,
}

/// What comes next.
enum At {
    Head,
    /// Values of an input from one on.
    Values(usize, usize),
    Tail,
    Over,
}

impl Answer {
    fn begin(&self, json: &mut String) {
        json.push_str("{\"id\":");
        push_quoted(&self.head.id, json);
        json.push_str(",\"object\":\"list\",\"created\":");
        // Into memory: it cannot fail, here and below.
        let _ = write!(json, "{},\"model\":", self.head.created);
        push_quoted(&self.head.model, json);
        json.push_str(",\"data\":[");
    }

    /// Adds some values of an input, and says where the next ones begin.
    fn values(&self, input: usize, from: usize, json: &mut String) -> At {
        let values = &self.embedded.values[input];
        let (open, close) = if self.base64 { ('"', '"') } else { ('[', ']') };
        if from == 0 {
            let comma = if input == 0 { "" } else { "," };
            let _ = write!(
                json,
                "{comma}{{\"object\":\"embedding\",\"index\":{input},\"embedding\":{open}"
            );
        }
        let to = values.len().min(from + PIECE_VALUES);
        let piece = &values[from..to];
        if self.base64 {
            let bytes: Vec<u8> = piece.iter().flat_map(|value| value.to_le_bytes()).collect();
            STANDARD.encode_string(bytes, json);
        } else {
            push_values(piece, from, json);
        }
        if to < values.len() {
            return At::Values(input, to);
        }
        json.push(close);
        json.push('}');
        if input + 1 < self.embedded.values.len() { At::Values(input + 1, 0) } else { At::Tail }
    }

    fn end(&self, json: &mut String) {
        let Embedded { prompt_tokens, cached_tokens, .. } = self.embedded;
        let usage = Usage::new(prompt_tokens, cached_tokens, 0);
        // Numbers always serialise.
        let usage = serde_json::to_string(&usage).unwrap_or_default();
        let _ = write!(json, "],\"usage\":{usage}}}");
    }
}

impl Iterator for Answer {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut json = String::new();
        self.at = match self.at {
            At::Head => {
                self.begin(&mut json);
                At::Values(0, 0)
            }
            At::Values(input, from) => self.values(input, from, &mut json),
            At::Tail => {
                self.end(&mut json);
                At::Over
            }
            At::Over => return None,
        };
        Some(json)
    }
}

/// Adds some values, of which `from` come before them: the shortest numbers that mean them.
fn push_values(values: &[f32], from: usize, json: &mut String) {
    for (i, value) in values.iter().enumerate() {
        let comma = if from + i == 0 { "" } else { "," };
        let _ = write!(json, "{comma}{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn answer(sizes: &[usize], base64: bool) -> (Vec<Vec<f32>>, Vec<String>) {
        let value = |i: usize| (i as f32 - 7.5) * 1.1e-7 * 3f32.powi(i as i32 % 40 - 20);
        let vectors: Vec<Vec<f32>> = sizes.iter().map(|n| (0..*n).map(value).collect()).collect();
        let head = Head { id: "embd-\"1\"".into(), created: 7, model: "m".into() };
        let embedded = Embedded { values: vectors.clone(), prompt_tokens: 9, cached_tokens: 4 };
        (vectors, Answer { head, embedded, base64, at: At::Head }.collect())
    }

    #[test]
    fn pieces_are_one_answer_however_long_the_vectors_are() {
        for base64 in [false, true] {
            let sizes = [1, 2, 3, PIECE_VALUES, PIECE_VALUES + 1, 4000];
            let (vectors, pieces) = answer(&sizes, base64);
            assert_eq!(pieces.len(), 2 + 1 + 1 + 1 + 1 + 2 + 3);
            let json: Value = serde_json::from_str(&pieces.concat()).unwrap();
            assert_eq!(json["id"], "embd-\"1\"");
            assert_eq!(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
            for (i, vector) in vectors.iter().enumerate() {
                let item = &json["data"][i];
                assert_eq!((&item["index"], &item["object"]), (&i.into(), &"embedding".into()));
                let got: Vec<f32> = match &item["embedding"] {
                    Value::String(text) => {
                        let bytes = STANDARD.decode(text).unwrap();
                        bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
                    }
                    list => {
                        let list = list.as_array().unwrap().iter();
                        list.map(|value| value.as_f64().unwrap() as f32).collect()
                    }
                };
                assert_eq!(got, *vector);
            }
        }
    }
}
