//! The hand-overs between the threads of a frontend, and their orders.

use std::sync::atomic::Ordering;

/// Where one thread of a frontend hands something to another without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A rung ticket goes to the token reader.
    Arrive,
    /// The submitter gives up the doorbell that it has rung.
    Rung,
    /// A canceller takes the doorbell.
    Cancel,
    /// It gives the doorbell back.
    Leave,
    /// The reader ends a ticket.
    End,
    /// A slot or its input goes back to the tracker.
    Return,
}

/// The order of the read-modify-write at an edge. The model checks weaken them one by one.
pub(crate) const fn order(edge: Edge) -> Ordering {
    match edge {
        Edge::Arrive | Edge::Return | Edge::Rung => Ordering::Release,
        Edge::Cancel => Ordering::Acquire,
        Edge::Leave | Edge::End => Ordering::AcqRel,
    }
}
