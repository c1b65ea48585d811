//! One error type: every variant names the file, and the field or tensor in it.

use std::path::PathBuf;

/// Why a model folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is not what its name says (not JSON, too large, damaged header, ...).
    #[error("{file}: {problem}")]
    File {
        /// File name inside the model folder.
        file: String,
        /// What is wrong, with the bound that was broken.
        problem: String,
    },
    /// A field has a value outside of its bounds, or one that this program does not implement.
    #[error("{file}: {field} {problem}")]
    Field {
        /// File name inside the model folder.
        file: String,
        /// Dotted path of the field, such as `rope_parameters.factor`.
        field: String,
        /// The value and the bound, such as `is 0, must be 1..=1024`.
        problem: String,
    },
    /// A tensor is absent or has the wrong shape or element type.
    #[error("{file}: tensor {tensor} {problem}")]
    Tensor {
        /// Shard (or index) file name.
        file: String,
        /// Full tensor name.
        tensor: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// `--model` names neither a directory nor something that can be a hub id.
    #[error("model {model:?}: {problem}")]
    NotFound {
        /// The model as the user typed it.
        model: String,
        /// What was tried.
        problem: String,
    },
    /// The hub refused or could not be reached.
    #[error("model {model:?} from the hub: {problem}")]
    Hub {
        /// The hub id.
        model: String,
        /// The client's sentence.
        problem: String,
    },
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, ModelError>;

impl ModelError {
    pub(crate) fn file(file: &str, problem: impl Into<String>) -> Self {
        Self::File { file: file.to_owned(), problem: problem.into() }
    }

    pub(crate) fn field(file: &str, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { file: file.to_owned(), field: field.into(), problem: problem.into() }
    }

    pub(crate) fn tensor(file: &str, tensor: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { file: file.to_owned(), tensor: tensor.to_owned(), problem: problem.into() }
    }
}
