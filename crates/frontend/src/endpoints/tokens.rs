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
use crate::text::tokenizer::EncodeParams;
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

/// Exactly the ids that a completion of the same text or conversation would use.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _in_flight = app.lifecycle.enter()?;
    let max_model_len = app.model_limits()?.max_model_len;
    let body = read_body(&app, request).await?;
    let asked = body.fields(&app, TokenizeRequest::read).await?;
    app.model_name(asked.model.as_deref())?;
    let source = match asked.input {
        TokenizeInput::Text(text) => PromptSource::Completion(Prompt::Text(text)),
        TokenizeInput::Chat(chat) => PromptSource::Chat(chat),
    };
    let assets = app.serving.assets.clone();
    let pool = app.serving.lanes.of(source.text_bytes());
    let crew = pool.crew();
    let job = move || {
        let add_special_tokens = asked.add_special_tokens;
        let params = EncodeParams { add_special_tokens, cache_salt: 0, crew: &crew };
        let (tokens, _) = encode(&assets, source, params)?;
        let token_strs = asked.return_token_strs.then(|| assets.tokenizer.token_strs(&tokens));
        // Written here as well: a long prompt has a long answer.
        let count = tokens.len();
        Ok(super::status::json(&Tokenized { count, max_model_len, tokens, token_strs }))
    };
    pool.run(job).await.map_err(pool_error)?
}

/// The text of ids.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let _in_flight = app.lifecycle.enter()?;
    let limits = app.model_limits()?;
    let body = read_body(&app, request).await?;
    let read = move |fields: &Fields| DetokenizeRequest::read(fields, limits);
    let asked = body.fields(&app, read).await?;
    app.model_name(asked.model.as_deref())?;
    let vocab = app.serving.assets.tokenizer.vocab().clone();
    let pool = app.serving.lanes.of(size_of_val(asked.tokens.as_slice()));
    let job = move || {
        let prompt = decode(&vocab, &asked.tokens, false);
        super::status::json(&Detokenized { prompt })
    };
    pool.run(job).await.map_err(pool_error)
}
