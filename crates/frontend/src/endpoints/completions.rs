//! `POST /v1/completions`

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::generate::{answer, ask, prepare_all};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::openai::CompletionFormat;
use crate::serving::PromptSource;
use crate::validate::CompletionRequest;

/// Continues prompts.
pub async fn completions(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut asked = ask(&app, request, CompletionRequest::read).await?;
    asked.tell("text_completion", &asked.body.params);
    let head = asked.head("cmpl-", &asked.body.params);
    let sources = asked.body.prompts.drain(..).map(PromptSource::Completion).collect();
    let (params, echo) = (&asked.body.params, asked.body.echo);
    let (prompts, admission) = prepare_all(&app, &asked.tenant, sources, params, echo).await?;
    let format = CompletionFormat::new(
        head,
        app.serving.assets.tokenizer.vocab().clone(),
        &prompts,
        params,
        echo,
    );
    answer(
        &app,
        (&prompts, admission),
        params,
        asked.arrived,
        (asked.in_flight, asked.tally),
        format,
    )
    .await
}
