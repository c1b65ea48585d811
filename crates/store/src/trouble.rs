//! What goes wrong between us and a store.

use std::time::Duration;

/// Characters of a store's own words that are kept: they go to a log, and the store chooses them.
const MAX_WORDS: usize = 200;

/// Why an operation failed. A store's trouble costs speed, never an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The store is not there, or not ready yet.
    #[error("cannot reach the store: {0}")]
    Connect(String),
    /// No answer within the deadline.
    #[error("the store has not answered within {0:?}")]
    Timeout(Duration),
    /// It does not let us: password, permission, a read-only replica, a bucket that is not there.
    #[error("the store refuses: {0}")]
    Refused(String),
    /// It answered something else than its protocol says.
    #[error("the store's answer is not understood: {0}")]
    Protocol(String),
    /// The value is longer than the caller's maximum.
    #[error("the value has more than {max_bytes} bytes")]
    TooLarge {
        /// The caller's.
        max_bytes: usize,
    },
    /// A value has at least one byte.
    #[error("the value is empty")]
    Empty,
    /// A connection broke in the middle, or a disk failed.
    #[error("input or output: {0}")]
    Io(String),
    /// As many operations as allowed are running; none ended within the deadline.
    #[error("{max_in_flight} operations are running, the most that may")]
    Busy {
        /// The bound.
        max_in_flight: usize,
    },
    /// The store has failed too often, and is left alone for a while.
    #[error("the store failed {failures} times in a row and is left alone")]
    BreakerOpen {
        /// That opened the breaker.
        failures: u32,
    },
}

impl Trouble {
    /// Every kind, for the labels of a metric.
    pub const KINDS: [&'static str; 9] = [
        "connect",
        "timeout",
        "refused",
        "protocol",
        "too_large",
        "empty",
        "io",
        "busy",
        "breaker_open",
    ];

    /// For a metric's label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Timeout(_) => "timeout",
            Self::Refused(_) => "refused",
            Self::Protocol(_) => "protocol",
            Self::TooLarge { .. } => "too_large",
            Self::Empty => "empty",
            Self::Io(_) => "io",
            Self::Busy { .. } => "busy",
            Self::BreakerOpen { .. } => "breaker_open",
        }
    }

    /// Whether it tells that the store is ill. A value that is too large does not.
    pub const fn is_failure(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::Timeout(_)
            | Self::Refused(_)
            | Self::Protocol(_)
            | Self::Io(_) => true,
            Self::TooLarge { .. } | Self::Empty | Self::Busy { .. } | Self::BreakerOpen { .. } => {
                false
            }
        }
    }
}

/// A store's words, made fit for a line of a log.
pub(crate) fn words(error: &impl ToString) -> String {
    let text = error.to_string();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_one_short_line() {
        let text = words(&format!("no\r\nroom\u{1b}[31m {}", "x".repeat(1000)));
        assert!(text.starts_with("no  room [31m xxx"), "{text}");
        assert_eq!(text.chars().count(), MAX_WORDS);
    }
}
