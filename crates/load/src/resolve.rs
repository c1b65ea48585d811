//! What a server must be asked before a run: its model's name, and the extensions that it takes.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::body::{BodyWriter, Dialect};
use crate::event::excerpt;
use crate::http::{Client, read_up_to};
use crate::{Api, LoadError, Prompt, PromptForm, Request, Target, Workload};

/// Longest wait for the model list and for the request that every run begins with.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(120);
const PROBE_TOKENS: u32 = 2;

impl Target {
    /// Asks for the model's name where none is given, and sends one short request to learn which
    /// extensions the server takes; a target that has both is returned as it is.
    /// [`run`](crate::run())
    /// does this itself: call it once where several runs must not each ask a busy server.
    ///
    /// # Errors
    /// [`LoadError::Server`] when it does not answer or refuses even the plainest request,
    /// [`LoadError::Spec`] for a URL or a prompt form that cannot be used.
    pub async fn resolve(&self, workload: &Workload) -> Result<Target, LoadError> {
        let mut target = self.clone();
        if target.model.is_some() && target.dialect.is_some() {
            return Ok(target);
        }
        let client = Client::new(self, 0).await?;
        let url = client.url(self.path());
        let asked = tokio::time::timeout(RESOLVE_TIMEOUT, async {
            let model = match &target.model {
                Some(model) => model.clone(),
                None => first_model(&client).await?,
            };
            let dialect = match target.dialect {
                Some(dialect) => dialect,
                None => dialect(&client, &target, &model, workload).await?,
            };
            Ok::<_, LoadError>((model, dialect))
        });
        let late = |_| LoadError::server(url, format!("no answer in {RESOLVE_TIMEOUT:?}"));
        let (model, dialect) = asked.await.map_err(late)??;
        (target.model, target.dialect) = (Some(model), Some(dialect));
        Ok(target)
    }

    /// The path that is asked, below the base URL.
    pub(crate) fn path(&self) -> &str {
        self.endpoint.as_deref().unwrap_or(self.api.path())
    }
}

pub(crate) async fn first_model(client: &Client) -> Result<String, LoadError> {
    const PATH: &str = "/v1/models";
    let wrong = |problem: String| LoadError::server(client.url(PATH), problem);
    let list = client.get_json(PATH).await.map_err(wrong)?;
    list["data"][0]["id"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| wrong("no model in the list; name one".into()))
}

async fn dialect(
    client: &Client,
    target: &Target,
    model: &str,
    workload: &Workload,
) -> Result<Dialect, LoadError> {
    let ids = matches!(workload.form, PromptForm::Ids { .. }) && target.api == Api::Completions;
    let prompt = if ids { Prompt::Ids(vec![0; 4]) } else { Prompt::Text("Say something".into()) };
    let request = Request { prompt, max_tokens: PROBE_TOKENS, exact: workload.exact };
    let mut refusal = String::new();
    for dialect in Dialect::LADDER {
        let body = BodyWriter::new(target, model, dialect).write(&request)?;
        match probe(client, target.path(), &body).await {
            Ok(()) => return Ok(dialect),
            Err(Refusal::Fields(why)) => refusal = why,
            Err(Refusal::Other(why)) => {
                return Err(LoadError::server(client.url(target.path()), why));
            }
        }
    }
    Err(LoadError::server(client.url(target.path()), refusal))
}

enum Refusal {
    /// The body: fewer fields may do.
    Fields(String),
    Other(String),
}

async fn probe(client: &Client, path: &str, body: &Bytes) -> Result<(), Refusal> {
    let answer = client.post(path, body, None, &mut None).await.map_err(Refusal::Other)?;
    let status = answer.response.status().as_u16();
    let mut body = answer.response.into_body();
    if status / 100 == 2 {
        // To its end: a server must not be left with an answer that nothing reads.
        while let Some(frame) = body.frame().await {
            frame.map_err(|e| Refusal::Other(e.to_string()))?;
        }
        return Ok(());
    }
    let text = read_up_to(body, 4096).await.unwrap_or_default();
    let why = format!("HTTP {status}: {}", excerpt(&text));
    Err(if matches!(status, 400 | 422) { Refusal::Fields(why) } else { Refusal::Other(why) })
}
