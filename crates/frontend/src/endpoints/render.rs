//! `POST /v1/chat/completions/render` and `POST /v1/completions/render`: what the device would be
//! given for a request, in vLLM's shape, with the prompt's text. It is given nothing, so neither a
//! busy device nor a tenant's limits refuse it.

use std::iter::{from_fn, once};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::generate::{Asked, ask};
use super::pieces::{PIECE_TOKENS, in_pieces, push_escaped, push_ids};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::http::budget::Charge;
use crate::lifecycle::InFlight;
use crate::openai::Rendered;
use crate::serving::{Prepared, PromptSource, check_arena, prepare};
use crate::tenants::Tenant;
use crate::validate::{ChatRequest, CompletionRequest, GenerateParams};

/// Bytes of a prompt's text in one piece of an answer.
const PIECE_TEXT_BYTES: usize = 16 * 1024;

/// The prompt of a conversation.
pub async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let mut asked: Asked<ChatRequest> = ask(&app, request, ChatRequest::read).await?;
    let params = &asked.body.params;
    let head = asked.head("chatcmpl-", params);
    let source = PromptSource::Chat(std::mem::take(&mut asked.body.chat));
    let params = &asked.body.params;
    let prompts = prepare_only(&app, &asked.tenant, vec![source], params).await?;
    let names = (&*head.id, &*head.model);
    let part = |prompt| Part::new(&Rendered::new(names, &prompt, params, false), prompt);
    let parts = prompts.into_iter().map(part).collect::<Result<_, _>>()?;
    answer(&app, parts, ["", ""], (asked.charge, asked.in_flight))
}

/// The prompts of a completion, in an array.
pub async fn completions(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut asked = ask(&app, request, CompletionRequest::read).await?;
    let params = &asked.body.params;
    let head = asked.head("cmpl-", params);
    let sources = asked.body.prompts.drain(..).map(PromptSource::Completion).collect();
    let (params, echo) = (&asked.body.params, asked.body.echo);
    let prompts = prepare_only(&app, &asked.tenant, sources, params).await?;
    let part = |(index, prompt)| {
        let id = format!("{}-{index}", head.id);
        let rendered = Rendered::new((&id, &head.model), &prompt, params, echo);
        Part::new(&rendered, prompt)
    };
    let parts = prompts.into_iter().enumerate().map(part).collect::<Result<_, _>>()?;
    answer(&app, parts, ["[", "]"], (asked.charge, asked.in_flight))
}

/// Prepares every prompt, with its text, if all choices could be submitted together.
async fn prepare_only(
    app: &App,
    tenant: &Tenant,
    sources: Vec<PromptSource>,
    params: &GenerateParams,
) -> Result<Vec<Prepared>, ApiError> {
    app.check_slots(sources.len() * params.n as usize)?;
    let device = app.serving.port.device();
    let mut prompts = Vec::with_capacity(sources.len());
    for source in sources {
        prompts.push(prepare((&app.serving, tenant), &device, source, params, true).await?);
    }
    check_arena(app.serving.port.arena_bytes(), &prompts, params)?;
    Ok(prompts)
}

/// One prompt's part of an answer.
struct Part {
    /// JSON of an object that lacks its end.
    fields: String,
    ids: Vec<u32>,
    text: String,
}

impl Part {
    fn new(rendered: &Rendered, prompt: Prepared) -> Result<Self, ApiError> {
        let json = serde_json::to_string(rendered);
        let mut fields = json.map_err(|e| ApiError::internal(e.to_string()))?;
        fields.pop();
        Ok(Self { fields, ids: prompt.ids, text: prompt.text })
    }

    fn bytes(&self) -> usize {
        self.fields.len() + size_of_val(self.ids.as_slice()) + self.text.len()
    }

    /// What it is written in, behind `before`.
    fn pieces(self, before: &str) -> impl Iterator<Item = String> + Send + use<> {
        let Self { fields, ids, text } = self;
        let begin = format!("{before}{fields},\"token_ids\":[");
        let ids = (0..ids.len()).step_by(PIECE_TOKENS).map(move |from| {
            let mut json = String::new();
            push_ids(&ids[from..ids.len().min(from + PIECE_TOKENS)], from, &mut json);
            json
        });
        let mut from = 0;
        let texts = from_fn(move || {
            let to = text.floor_char_boundary(from + PIECE_TEXT_BYTES);
            let mut json = String::new();
            push_escaped(&text[from..to], &mut json);
            from = to;
            (!json.is_empty()).then_some(json)
        });
        let (middle, end) = ("],\"prompt\":\"".to_owned(), "\"}".to_owned());
        once(begin).chain(ids).chain(once(middle)).chain(texts).chain(once(end))
    }
}

fn answer(
    app: &App,
    parts: Vec<Part>,
    [open, close]: [&'static str; 2],
    (mut charge, in_flight): (Charge, InFlight),
) -> Result<Response, ApiError> {
    let bytes = parts.iter().map(Part::bytes).sum();
    charge.cover(&app.memory, bytes)?;
    let of_part =
        move |(index, part): (usize, Part)| part.pieces(if index == 0 { open } else { "," });
    let pieces = parts.into_iter().enumerate().flat_map(of_part).chain(once(close.to_owned()));
    let pool = app.serving.lanes.long();
    if bytes <= PIECE_TEXT_BYTES {
        let whole = once(pieces.collect::<String>());
        return Ok(in_pieces(whole, pool, charge, in_flight));
    }
    Ok(in_pieces(pieces, pool, charge, in_flight))
}
