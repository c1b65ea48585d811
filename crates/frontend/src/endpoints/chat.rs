//! `POST /v1/chat/completions`

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::generate::{Asked, answer, ask, prepare_all};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::openai::{Answering, CallIds, ChatFormat};
use crate::serving::PromptSource;
use crate::validate::ChatRequest;

/// Continues a conversation.
pub async fn chat_completions(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut asked: Asked<ChatRequest> = ask(&app, request, ChatRequest::read).await?;
    asked.tell("chat", &asked.body.params);
    let head = asked.head("chatcmpl-", &asked.body.params);
    let chat = std::mem::take(&mut asked.body.chat);
    let ChatRequest { params, echo, include_reasoning, .. } = asked.body;
    let last = if echo { chat.last_text() } else { String::new() };
    let sources = vec![PromptSource::Chat(chat)];
    let (prompts, admission) = prepare_all(&app, &asked.tenant, sources, &params, false).await?;
    let vocab = app.serving.assets.tokenizer.vocab().clone();
    let ids = CallIds::new(app.serving.assets.answers.tools())?;
    let answering = Answering { ids, include_reasoning };
    let format = ChatFormat::new(head, vocab, &prompts[0], &params, last, answering);
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
