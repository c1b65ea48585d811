//! Commands, as far as they may be believed.

use crate::layout::*;
use crate::region::Layout;

/// A command whose every number is within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Lookup { row: Row },
    Load { row: Row, chunk: u32, frame: u32 },
    Store { row: Row, chunk: u32, frame: u32 },
    Cancel { target: u64 },
}

/// Whole chunks of a row of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub entry: u32,
    pub num_chunks: u32,
}

impl Request {
    /// None: it breaks a bound.
    pub fn check(layout: &Layout, command: &Command) -> Option<Request> {
        if command.op == SAC_FETCH_CANCEL {
            return Some(Request::Cancel { target: command.target });
        }
        let row = row(layout, command)?;
        let in_frame = |make: fn(Row, u32, u32) -> Request| {
            let within = command.chunk < row.num_chunks && command.frame < layout.num_frames();
            within.then(|| make(row, command.chunk, command.frame))
        };
        match command.op {
            _ if command.id == 0 => None,
            SAC_FETCH_LOOKUP => Some(Request::Lookup { row }),
            SAC_FETCH_LOAD => in_frame(|row, chunk, frame| Request::Load { row, chunk, frame }),
            SAC_FETCH_STORE => in_frame(|row, chunk, frame| Request::Store { row, chunk, frame }),
            _ => None,
        }
    }

    /// That it borrows.
    pub fn frame(&self) -> Option<u32> {
        match self {
            Request::Load { frame, .. } | Request::Store { frame, .. } => Some(*frame),
            Request::Lookup { .. } | Request::Cancel { .. } => None,
        }
    }
}

fn row(layout: &Layout, command: &Command) -> Option<Row> {
    let (entry, tokens) = (command.entry, command.num_tokens);
    let within = entry < layout.num_entries()
        && (SAC_CHUNK_TOKENS..=layout.entry_tokens()).contains(&tokens)
        && tokens.is_multiple_of(SAC_CHUNK_TOKENS);
    within.then_some(Row { entry, num_chunks: tokens / SAC_CHUNK_TOKENS })
}
