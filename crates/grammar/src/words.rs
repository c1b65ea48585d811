//! The automaton as the device reads it (`abi/wire.h`, "grammar"):
//!
//! - word 0: number of states; word 1: number of edges;
//! - a word for each state and one more: bits 0-15 its first edge, 16-21 how much plain text may
//!   follow, 22 final, 23 default, 24-31 need;
//! - two words for each edge: `low | high << 8 | target << 16`, then the state that is pushed, or
//!   [`NO_PUSH`]; behind those of a state with a default, `default << 16` and [`NO_PUSH`];
//! - two words for each forced token: its state, and the token.

use std::sync::Arc;

use crate::assemble::FlatState;
use crate::{Bound, GrammarError};

/// Places of the stack (`SAC_GRAMMAR_STACK`).
pub const MAX_STACK: usize = 32;
/// States have 16 bits, and one value says that there is none.
const MAX_STATES: usize = 0xffff;
/// An edge's second word: nothing is pushed.
pub(crate) const NO_PUSH: u32 = 0xffff;

pub(crate) const FIRST_EDGE_MASK: u32 = 0xffff;
pub(crate) const PLAIN_SHIFT: u32 = 16;
pub(crate) const PLAIN_MASK: u32 = 0x3f;
pub(crate) const FINAL: u32 = 1 << 22;
const DEFAULT: u32 = 1 << 23;
pub(crate) const NEED_SHIFT: u32 = 24;

/// A compiled grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Automaton {
    words: Arc<[u32]>,
}

impl Automaton {
    /// As it crosses the ring.
    #[must_use]
    pub fn words(&self) -> &Arc<[u32]> {
        &self.words
    }
    /// Number of states.
    #[must_use]
    pub fn num_states(&self) -> usize {
        self.words[0] as usize
    }

    pub(crate) fn state(&self, state: u32) -> u32 {
        self.words[2 + state as usize]
    }
    /// Two words for each edge of a state, and for its default.
    fn entries(&self, state: u32) -> impl DoubleEndedIterator<Item = (u32, u32)> {
        let begin = (self.state(state) & FIRST_EDGE_MASK) as usize;
        let end = (self.state(state + 1) & FIRST_EDGE_MASK) as usize;
        let at = 3 + self.num_states();
        self.words[at + 2 * begin..at + 2 * end].chunks_exact(2).map(|pair| (pair[0], pair[1]))
    }
    /// The states that are followed by one token only, ascending, and these tokens.
    #[must_use]
    pub fn forced(&self) -> &[[u32; 2]] {
        let num_edges = self.words[1] as usize;
        self.words[3 + self.num_states() + 2 * num_edges..].as_chunks().0
    }
    /// Whether any byte has an edge.
    pub(crate) fn goes_on(&self, state: u32) -> bool {
        self.entries(state).next().is_some()
    }
    /// The edge that covers a byte: the state that it leads to, and the one that it pushes or
    /// [`NO_PUSH`].
    pub(crate) fn find(&self, state: u32, byte: u8) -> Option<(u32, u32)> {
        let mut edges = self.entries(state);
        let default = (self.state(state) & DEFAULT != 0).then(|| edges.next_back()).flatten();
        let covers = |&(bytes, _): &(u32, u32)| (bytes as u8) <= byte && byte <= (bytes >> 8) as u8;
        match edges.find(covers) {
            Some((bytes, push)) => Some((bytes >> 16, push)),
            None => self.find(default?.0 >> 16, byte),
        }
    }
}

/// Packs states, and as many of the tokens that they force as there is room for. At most `limit`
/// words.
pub(crate) fn pack(
    states: &[FlatState],
    forced: &[(u32, u32)],
    limit: usize,
) -> Result<Automaton, GrammarError> {
    let num_entries = |state: &FlatState| state.edges.len() + usize::from(state.default.is_some());
    let num_edges: usize = states.iter().map(num_entries).sum();
    if states.len() == 1 && num_edges == 0 {
        return Err(GrammarError::Empty);
    }
    let size = 3 + states.len() + 2 * num_edges;
    if size > limit || states.len() > MAX_STATES || num_edges > FIRST_EDGE_MASK as usize {
        let bytes = 4 * limit as u64;
        return Err(GrammarError::TooLarge { bound: Bound::Automaton, limit: bytes });
    }
    let forced = &forced[..forced.len().min((limit - size) / 2)];
    let mut words = Vec::with_capacity(size + 2 * forced.len());
    words.extend([states.len() as u32, num_edges as u32]);
    let mut first_edge = 0;
    for state in states {
        let is_final = if state.is_final { FINAL } else { 0 };
        let plain = u32::from(state.plain) << PLAIN_SHIFT;
        let default = if state.default.is_some() { DEFAULT } else { 0 };
        words.push(first_edge | plain | is_final | default | state.need << NEED_SHIFT);
        first_edge += num_entries(state) as u32;
    }
    words.push(first_edge);
    for state in states {
        for edge in &state.edges {
            words.push(u32::from(edge.low) | u32::from(edge.high) << 8 | edge.target << 16);
            words.push(edge.push.unwrap_or(NO_PUSH));
        }
        words.extend(state.default.into_iter().flat_map(|default| [default << 16, NO_PUSH]));
    }
    words.extend(forced.iter().flat_map(|&(state, token)| [state, token]));
    Ok(Automaton { words: words.into() })
}
