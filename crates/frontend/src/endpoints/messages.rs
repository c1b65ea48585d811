//! `POST /v1/messages` and `POST /v1/messages/count_tokens`, in Anthropic's shape.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::generate::{Asked, answer, ask, prepare_all};
use crate::anthropic::{MessagesFormat, read_count, read_messages, refusal};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::http::read_body;
use crate::openai::CallIds;
use crate::serving::{PromptSource, encode, pool_error};
use crate::text::tokenizer::EncodeParams;
use crate::validate::ChatRequest;

/// Continues a conversation.
pub async fn messages(State(app): State<Arc<App>>, request: Request) -> Response {
    generate(app, request).await.unwrap_or_else(refusal)
}

async fn generate(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let mut asked: Asked<ChatRequest> = ask(&app, request, read_messages).await?;
    asked.tell("chat", &asked.body.params);
    let head = asked.head("msg-", &asked.body.params);
    let chat = std::mem::take(&mut asked.body.chat);
    let ChatRequest { params, include_reasoning, .. } = asked.body;
    let sources = vec![PromptSource::Chat(chat)];
    let (prompts, admission) = prepare_all(&app, &asked.tenant, sources, &params, false).await?;
    let ids = CallIds::new(app.serving.assets.answers.tools())?;
    let format = MessagesFormat::new(head, &params, ids, include_reasoning);
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

/// How many tokens a conversation is.
pub async fn count_tokens(State(app): State<Arc<App>>, request: Request) -> Response {
    count(app, request).await.unwrap_or_else(refusal)
}

async fn count(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let _in_flight = app.lifecycle.enter()?;
    let body = read_body(&app, request).await?;
    let ((model, chat), _charge) = body.fields(&app, read_count).await?;
    app.named_model(model.as_deref())?;
    let source = PromptSource::Chat(chat);
    let assets = app.serving.assets.clone();
    let pool = app.serving.lanes.of(source.text_bytes());
    let crew = pool.crew();
    let job = move || {
        let params = EncodeParams { add_special_tokens: false, cache_salt: 0, crew: &crew };
        encode(&assets, source, params).map(|(ids, _)| ids.len())
    };
    let input_tokens = pool.run(job).await.map_err(pool_error)??;
    let counted = json!({"input_tokens": input_tokens}).to_string();
    Ok(([(CONTENT_TYPE, "application/json")], counted).into_response())
}
