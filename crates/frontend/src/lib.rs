//! The frontend plane: HTTP, validation, chat templates, tokenizer, token reader, SSE.
//!
//! One request: [`http`](self) accepts it, [`validate`] reads its parameters against one table of
//! bounds, `serving` renders and tokenizes its prompt on a bounded pool and submits it to the ring,
//! the token reader's thread moves its tokens into a bounded mailbox, and its own task turns them
//! into text and events. No step waits for another request.
//!
//! Invariants: nothing here holds a queue without a bound; a client that goes away cancels its
//! tickets by dropping them; a client that does not read stalls its own request only; every request
//! is answered, refused with a reason, or ended by an explicit error event.

mod anthropic;
mod api_error;
mod config;
mod endpoints;
mod error;
mod frontend;
mod http;
mod lifecycle;
pub mod limits;
mod metrics;
mod openai;
mod responses;
mod ring;
mod served;
mod serving;
mod tenants;
mod text;
mod traces;
mod validate;
mod watched;

pub use api_error::ApiError;
pub use config::{Adapter, Cors, FrontendConfig, HttpLimits, Listen, ParserChoice, SloDefaults};
pub use error::FrontendError;
pub use frontend::{Endpoint, Frontend, ShutdownHandle, fuzz_http_body, serve};
pub use http::Listening;
pub use http::{AccessLogConfig, TlsFiles};
pub use lifecycle::Stage;
pub use saccade_parsers::{ReasoningFormat, ToolFormat};
pub use served::check_adapters;
pub use serving::token_bytes;
pub use traces::TracesConfig;
pub use validate::params;
