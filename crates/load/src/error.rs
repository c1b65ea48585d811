//! What keeps a run from taking place at all. What a server does to one request is an
//! [`Outcome`](crate::Outcome), never an error.

use std::path::PathBuf;

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A field of the specification is out of its bounds.
    #[error("{field}: {problem}")]
    Spec {
        /// The field, as users name it.
        field: &'static str,
        /// What is wrong, with the bound.
        problem: String,
    },
    /// A file of prompts, conversations or times cannot be read.
    #[error("{path}: {problem}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong; the line where it is known.
        problem: String,
    },
    /// The server does not answer, or refuses the request that every run begins with.
    #[error("{url}: {problem}")]
    Server {
        /// What was asked.
        url: String,
        /// What came back.
        problem: String,
    },
    /// The operating system refuses what the client needs of it.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The reason.
        source: std::io::Error,
    },
}

impl LoadError {
    pub(crate) fn spec(field: &'static str, problem: impl Into<String>) -> LoadError {
        LoadError::Spec { field, problem: problem.into() }
    }

    pub(crate) fn file(path: &std::path::Path, problem: impl ToString) -> LoadError {
        LoadError::File { path: path.to_owned(), problem: problem.to_string() }
    }

    pub(crate) fn server(url: impl Into<String>, problem: impl ToString) -> LoadError {
        LoadError::Server { url: url.into(), problem: problem.to_string() }
    }
}
