//! `POST /tokenize` and `POST /detokenize`

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Serialize;

use crate::api_error::ApiError;
use crate::http::app::App;
use crate::http::read_body;
use crate::serving::{PromptSource, encode, pool_error};
use crate::text::detokenize::decode;
use crate::validate::{DetokenizeRequest, Fields, Prompt, TokenizeInput, TokenizeRequest};

#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: u32,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Detokenized {
    prompt: String,
}

/// Exactly the ids that a completion of the same text or conversation would be computed from.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _in_flight = app.lifecycle.enter()?;
    let max_model_len = app.model_limits()?.max_model_len;
    let body = read_body(&app, request).await?;
    let asked = TokenizeRequest::read(&Fields::parse(&body.bytes)?)?;
    app.model_name(asked.model.as_deref())?;
    let source = match asked.input {
        TokenizeInput::Text(text) => PromptSource::Completion(Prompt::Text(text)),
        TokenizeInput::Chat(chat) => PromptSource::Chat(chat),
    };
    let assets = app.serving.assets.clone();
    let job = move || {
        let (tokens, _) = encode(&assets, source, asked.add_special_tokens)?;
        let token_strs = asked.return_token_strs.then(|| assets.tokenizer.token_strs(&tokens));
        Ok(Tokenized { count: tokens.len(), max_model_len, tokens, token_strs })
    };
    let tokenized = app.serving.pool.run(job).await.map_err(pool_error)??;
    Ok(super::status::json(&tokenized))
}

/// The text of ids.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let _in_flight = app.lifecycle.enter()?;
    let limits = app.model_limits()?;
    let body = read_body(&app, request).await?;
    let asked = DetokenizeRequest::read(&Fields::parse(&body.bytes)?, limits)?;
    app.model_name(asked.model.as_deref())?;
    let vocab = app.serving.assets.tokenizer.vocab().clone();
    let job = move || decode(&vocab, &asked.tokens, false);
    let prompt = app.serving.pool.run(job).await.map_err(pool_error)?;
    Ok(super::status::json(&Detokenized { prompt }))
}
