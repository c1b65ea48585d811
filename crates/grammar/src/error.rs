//! Why a grammar was refused.

use std::fmt;

/// Why a grammar was refused. Each is the client's to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A keyword or construct that is not implemented.
    #[error("{name} is not supported{}", at(.path))]
    Unsupported {
        /// The keyword, with what of it is not supported.
        name: String,
        /// JSON pointer of what has it, or the place in a context-free grammar.
        path: String,
    },
    /// The text is not what it claims to be.
    #[error("{message}{}", at(.path))]
    Invalid {
        /// What is wrong.
        message: String,
        /// JSON pointer of what is wrong, or the place in a context-free grammar.
        path: String,
    },
    /// A bound was passed.
    #[error("the grammar is too large: {bound} must be at most {limit}")]
    TooLarge {
        /// What is bounded.
        bound: Bound,
        /// The bound.
        limit: u64,
    },
    /// No text obeys it.
    #[error("no answer can obey the grammar")]
    Unsatisfiable,
    /// Only the empty text obeys it.
    #[error("only the empty answer obeys the grammar")]
    Empty,
}

/// What of a grammar is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Steps that compiling it takes ([`Limits::fuel`](crate::Limits::fuel)).
    Steps,
    /// Its automaton ([`Limits::words`](crate::Limits::words)), in bytes.
    Automaton,
    /// Something of its source.
    Source(&'static str),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Steps => "steps of its compiler",
            Bound::Automaton => "its automaton in bytes",
            Bound::Source(what) => what,
        })
    }
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" (at {path})") }
}

impl GrammarError {
    /// Whether it says that this bound was passed.
    #[must_use]
    pub fn is_of(&self, passed: Bound) -> bool {
        matches!(self, GrammarError::TooLarge { bound, .. } if *bound == passed)
    }
    /// Unsupported, outside of a JSON Schema or at its root.
    pub(crate) fn unsupported(name: impl Into<String>, path: &str) -> GrammarError {
        GrammarError::Unsupported { name: name.into(), path: path.into() }
    }
    pub(crate) fn invalid(message: impl Into<String>, path: &str) -> GrammarError {
        GrammarError::Invalid { message: message.into(), path: path.into() }
    }

    /// The same about a part of a structural tag, which is at `at`.
    pub(crate) fn within(mut self, at: &str) -> GrammarError {
        if let GrammarError::Unsupported { path, .. } | GrammarError::Invalid { path, .. } =
            &mut self
        {
            *path = match path.strip_prefix('#') {
                Some(pointer) => format!("{at}{pointer}"),
                None if path.is_empty() => at.to_owned(),
                None => format!("{at}, {path}"),
            };
        }
        self
    }
}
