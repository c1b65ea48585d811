//! Open- and closed-loop load on OpenAI-compatible servers, and what it says.
//!
//! [`run()`] sends the requests of a [`LoadSpec`] to a [`Target`] and returns a [`Run`]: one
//! [`RequestRecord`] per request and the health of the client itself. [`Summary::of`] turns it into
//! percentiles, throughput and goodput; [`analysis`] reads several runs at different rates.
//!
//! Open-loop arrivals are sent at their intended times whatever the server does, and latencies are
//! counted from the *intended* time: a server that stalls is charged for every request that would
//! have come meanwhile (coordinated omission). The same figures from the time of sending are next
//! to them; the difference is the client's own lateness.

pub mod analysis;
mod arrival;
mod body;
mod client;
mod clock;
mod error;
mod event;
mod exchange;
mod health;
mod http;
mod pace;
mod record;
mod resolve;
mod run;
mod session;
mod spec;
mod sse;
mod stats;
mod summary;
mod target;
#[cfg(test)]
mod test_runs;
mod throughput;
mod workload;

pub use arrival::Arrival;
pub use body::Dialect;
pub use client::{Priority, raise_open_files, run_on_own_thread};
pub use error::LoadError;
pub use http::Origin;
pub use record::{ClientHealth, Outcome, RequestRecord, Run, TokenSource};
pub use run::run;
pub use session::{Answered, Session, StreamEnd};
pub use spec::{LoadSpec, Observer, Warmup};
pub use stats::{Distribution, nan_as_null, nearest_rank, unknown};
pub use summary::{Attainment, Latencies, Slo, Summary};
pub use target::{Api, Target, Tls};
pub use workload::{
    Lengths, Message, Prompt, PromptForm, Request, SharedPrefix, Source, Trace, TraceEntry,
    Workload, share_gpt_lengths,
};
