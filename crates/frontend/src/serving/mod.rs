//! One request from validated parameters to text: preparing prompts, submitting choices, and
//! turning their tokens into deltas.

mod answers;
mod choice;
mod embedding;
mod generation;
mod grammar;
mod model;
mod prepare;

pub use choice::{Delta, FinishReason, TokenLogprobs};
pub use embedding::{Embedded, EmbeddingForm, embed};
pub use generation::{Generation, check_arena};
pub use grammar::Grammars;
pub use model::{ModelAssets, token_bytes};
pub use prepare::{Prepared, PromptSource, encode, pool_error, prepare};

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::ring::{DevicePort, Registry};
use crate::text::pool::Lanes;

/// What every request needs.
#[derive(Clone)]
pub struct Serving {
    /// The ring's submitting half.
    pub port: Arc<dyn DevicePort>,
    /// Mailboxes of the tickets in flight.
    pub registry: Arc<Registry>,
    /// The HTTP thread that this copy serves.
    pub thread: usize,
    /// The model's texts and defaults.
    pub assets: Arc<ModelAssets>,
    /// Grammars that were compiled.
    pub grammars: Arc<Grammars>,
    /// Threads for templates and tokenization.
    pub lanes: Lanes,
    /// How long a request may take, from its arrival on.
    pub request_timeout: Option<Duration>,
    /// Counters and histograms.
    pub metrics: Arc<Metrics>,
}

impl Serving {
    /// For a `Retry-After`: seconds until a slot may be free.
    pub fn retry_after_s(&self) -> u32 {
        self.metrics.retry_after_s(self.port.stats().num_running)
    }
}
