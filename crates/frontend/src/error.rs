//! Why a frontend cannot start or continue.

use saccade_model::ModelError;
use saccade_ring::JoinError;

use crate::text::tokenizer::TokenizerError;

/// A fault of the frontend as a whole; a request's faults are [`crate::ApiError`]s.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The model's folder.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The ring region.
    #[error(transparent)]
    Ring(#[from] JoinError),
    /// A file that is missing or wrong.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A field of the configuration.
    #[error("{field}: {reason}")]
    Config {
        /// The field, or the flag behind it.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The address to listen on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Threads, sockets.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
