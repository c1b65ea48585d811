//! The synchronisation types of a mailbox, in one place: the model check compiles it with loom's
//! instead (see `tests/loom.rs`).

pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Where one side of a mailbox hands something to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The reader has put a token.
    Put,
    /// The task looks for tokens.
    Look,
    /// The task has taken tokens: their places may be written again.
    Taken,
    /// The reader looks for room.
    Room,
    /// The reader has put the end.
    End,
    /// The task looks for the end.
    LookForEnd,
}

/// The order of an access at an edge. The model check weakens them one by one.
pub(super) const fn order(edge: Edge) -> Ordering {
    match edge {
        Edge::Put | Edge::Taken | Edge::End => Ordering::Release,
        Edge::Look | Edge::Room | Edge::LookForEnd => Ordering::Acquire,
    }
}
