//! `POST /v1/responses`, in the shape of OpenAI's Responses API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::generate::{Asked, answer, ask, prepare_all};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::openai::{Blocks, CallIds, TokenNames};
use crate::responses::{ResponsesFormat, ResponsesRequest, read_responses, theirs};
use crate::serving::PromptSource;
use crate::validate::ChatRequest;

/// Continues a conversation.
pub async fn responses(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut asked: Asked<ResponsesRequest> = ask(&app, request, read_responses).await?;
    asked.tell("chat", &asked.body.chat.params);
    let head = asked.head("resp_", &asked.body.chat.params);
    let ResponsesRequest { chat, echo } = asked.body;
    let ChatRequest { params, chat, include_reasoning, .. } = chat;
    let sources = vec![PromptSource::Chat(chat)];
    let prepared = prepare_all(&app, &asked.tenant, sources, &params, false).await;
    let (prompts, admission) = prepared.map_err(theirs)?;
    // From here on the request holds of its body what the answer repeats.
    asked.charge.shrink(echo.bytes);
    let ids = CallIds::new(app.serving.assets.answers.tools())?;
    let vocab = app.serving.assets.tokenizer.vocab().clone();
    let format = ResponsesFormat::new(
        head,
        (echo, asked.charge),
        &prompts[0],
        Blocks::new(ids, include_reasoning),
        TokenNames::new(vocab, false),
    );
    answer(
        &app,
        (&prompts, admission),
        &params,
        asked.arrived,
        (asked.in_flight, asked.tally),
        format,
    )
    .await
}
