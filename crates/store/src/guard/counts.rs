//! How operations ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Trouble;

/// What was asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `exist`.
    Exist,
    /// `longest_prefix`.
    LongestPrefix,
    /// `get`.
    Get,
    /// `get_many`.
    GetMany,
    /// `put`.
    Put,
    /// `remove`.
    Remove,
    /// `list`.
    List,
}

impl Operation {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Exist,
        Self::LongestPrefix,
        Self::Get,
        Self::GetMany,
        Self::Put,
        Self::Remove,
        Self::List,
    ];

    /// For a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exist => "exist",
            Self::LongestPrefix => "longest_prefix",
            Self::Get => "get",
            Self::GetMany => "get_many",
            Self::Put => "put",
            Self::Remove => "remove",
            Self::List => "list",
        }
    }
}

/// Operations of one kind that ended in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Which.
    pub operation: Operation,
    /// `ok`, `absent`, `already`, `full`, or a kind of trouble.
    pub outcome: &'static str,
    /// Since the start.
    pub count: u64,
}

const ENDS: [&str; 4] = ["ok", "absent", "already", "full"];
const OUTCOMES: usize = ENDS.len() + Trouble::KINDS.len();

fn outcomes() -> impl Iterator<Item = &'static str> {
    ENDS.into_iter().chain(Trouble::KINDS)
}

#[derive(Debug, Default)]
pub(super) struct Counters([[AtomicU64; OUTCOMES]; Operation::ALL.len()]);

impl Counters {
    pub(super) fn count(&self, operation: Operation, outcome: &'static str) {
        let row = &self.0[operation as usize];
        if let Some(index) = outcomes().position(|known| known == outcome) {
            row[index].fetch_add(1, Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> Vec<Count> {
        let mut counts = Vec::new();
        for operation in Operation::ALL {
            for (outcome, count) in outcomes().zip(&self.0[operation as usize]) {
                let count = count.load(Relaxed);
                if count > 0 {
                    counts.push(Count { operation, outcome, count });
                }
            }
        }
        counts
    }
}
