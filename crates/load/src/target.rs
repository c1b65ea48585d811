//! Which server, and how it is asked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Dialect;

/// Which of the two APIs carries the prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/completions`: text or token ids.
    Completions,
    /// `/v1/chat/completions`: messages; a text prompt becomes one user message.
    Chat,
}

impl Api {
    /// The path of the API below the base URL.
    pub fn path(self) -> &'static str {
        match self {
            Api::Completions => "/v1/completions",
            Api::Chat => "/v1/chat/completions",
        }
    }
}

/// Which certificates of an `https` server are believed; by default the ones the system trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tls {
    /// Any certificate.
    pub insecure: bool,
    /// Certificates that these (PEM) vouch for, in place of the system's.
    pub ca_file: Option<PathBuf>,
}

impl Tls {
    fn is_default(&self) -> bool {
        *self == Tls::default()
    }
}

/// A server under load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Label in reports.
    pub name: String,
    /// `http://host:port` or `https://host`; with or without `/v1`.
    pub base_url: String,
    /// Which API is used.
    pub api: Api,
    /// Path in place of the API's own, for servers behind a prefix.
    pub endpoint: Option<String>,
    /// Model name in the requests; `None` asks `/v1/models` and takes the first.
    pub model: Option<String>,
    /// Bearer token; never written into results.
    #[serde(skip)]
    pub api_key: Option<String>,
    /// Further fields of each request body, over the client's own; a `null` removes a field.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Which extensions the server takes; `None` asks it with one short request.
    pub dialect: Option<Dialect>,
    /// How an `https` server proves its identity.
    #[serde(default, skip_serializing_if = "Tls::is_default")]
    pub tls: Tls,
}

impl Target {
    /// A server by its base URL, with the completions API and the model that it names itself.
    pub fn new(base_url: impl Into<String>) -> Target {
        let base_url = base_url.into();
        Target {
            name: base_url.clone(),
            base_url,
            api: Api::Completions,
            endpoint: None,
            model: None,
            api_key: None,
            extra_body: serde_json::Map::new(),
            dialect: None,
            tls: Tls::default(),
        }
    }
}
