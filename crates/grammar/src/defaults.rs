//! Leaves out edges that a state shares with another. In an object that may have more members than
//! its schema names, each beginning of a name goes on as any other text does but for a few bytes:
//! these few, and the name of the state for other text, say it all.

use std::cmp::Reverse;

use crate::GrammarError;
use crate::assemble::{FlatEdge, FlatState};
use crate::fuel::Fuel;

/// Gives states a default where that takes less room. What is a default has none itself.
pub(crate) fn share_edges(states: &mut [FlatState], fuel: &mut Fuel) -> Result<(), GrammarError> {
    let mut is_default = vec![false; states.len()];
    for index in 0..states.len() {
        let edges = &states[index].edges;
        let Some(other) = usual_target(edges) else { continue };
        let of_other = &states[other as usize];
        fuel.burn(edges.len() + of_other.edges.len())?;
        if is_default[index] || other as usize == index || of_other.default.is_some() {
            continue;
        }
        let Some(own) = beyond(edges, &of_other.edges) else { continue };
        // A default takes the room of an edge.
        if own.len() + 1 < edges.len() {
            is_default[other as usize] = true;
            states[index].edges = own;
            states[index].default = Some(other);
        }
    }
    Ok(())
}

/// The state to which most bytes lead, without a push.
fn usual_target(edges: &[FlatEdge]) -> Option<u32> {
    let mut widths: Vec<(u32, u32)> = edges
        .iter()
        .filter(|edge| edge.push.is_none())
        .map(|edge| (edge.target, u32::from(edge.high - edge.low) + 1))
        .collect();
    widths.sort_unstable();
    let sums = widths
        .chunk_by(|one, next| one.0 == next.0)
        .map(|same| (same.iter().map(|&(_, width)| width).sum::<u32>(), Reverse(same[0].0)));
    sums.max().map(|(_, target)| target.0)
}

/// What of `edges` differs from `others`. None if those cover a byte that these do not.
fn beyond(edges: &[FlatEdge], others: &[FlatEdge]) -> Option<Vec<FlatEdge>> {
    let mut own = Vec::new();
    let mut num_covered = 0;
    let mut first = 0;
    for edge in edges {
        let mut low = u32::from(edge.low);
        let mut keep = |low: u32, end: u32| {
            if low < end {
                own.push(FlatEdge { low: low as u8, high: (end - 1) as u8, ..*edge });
            }
        };
        first += others[first..].partition_point(|other| other.high < edge.low);
        for other in others[first..].iter().take_while(|other| other.low <= edge.high) {
            let from = u32::from(other.low.max(edge.low));
            let to = u32::from(other.high.min(edge.high));
            num_covered += to - from + 1;
            if (other.target, other.push) == (edge.target, edge.push) {
                keep(low, from);
                low = to + 1;
            }
        }
        keep(low, u32::from(edge.high) + 1);
    }
    let of_others: u32 = others.iter().map(|other| u32::from(other.high - other.low) + 1).sum();
    (num_covered == of_others).then_some(own)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::words::{NO_PUSH, pack};

    /// Edges over a few bytes and targets, so that states often share them.
    fn state() -> impl Strategy<Value = FlatState> {
        let cuts = proptest::collection::btree_set(0_u8..40, 0..8);
        let ends = proptest::collection::vec((any::<bool>(), 0_u32..3, 0_u32..6), 8);
        (cuts, ends).prop_map(|(cuts, ends)| {
            let cuts: Vec<u8> = cuts.into_iter().collect();
            let ranges = cuts.windows(2).zip(ends).filter(|(_, (there, ..))| *there);
            let edges = ranges.map(|(cut, (_, target, push))| {
                let push = (push < 3).then_some(push);
                FlatEdge { low: cut[0], high: cut[1] - 1, target, push }
            });
            FlatState { edges: edges.collect(), ..FlatState::default() }
        })
    }

    fn end_of(state: &FlatState, byte: u8) -> Option<(u32, u32)> {
        let edge = state.edges.iter().find(|edge| (edge.low..=edge.high).contains(&byte))?;
        Some((edge.target, edge.push.unwrap_or(NO_PUSH)))
    }

    proptest! {
        #[test]
        fn each_byte_leads_where_it_did(states in proptest::collection::vec(state(), 3..9)) {
            let mut shared = states.clone();
            share_edges(&mut shared, &mut Fuel::new(1 << 20)).unwrap();
            let Ok(automaton) = pack(&shared, &[], 1 << 16) else { return Ok(()) };
            for (index, state) in states.iter().enumerate() {
                for byte in 0..=255 {
                    let found = automaton.find(index as u32, byte);
                    prop_assert_eq!(found, end_of(state, byte), "state {}, byte {}", index, byte);
                }
            }
        }
    }

    #[test]
    fn a_state_that_differs_in_a_byte_is_two_entries() {
        let edge = |low, high, target| FlatEdge { low, high, target, push: None };
        let text = FlatState {
            edges: vec![edge(0x20, 0x21, 0), edge(0x23, 0x5b, 0), edge(0xc2, 0xdf, 1)],
            ..FlatState::default()
        };
        let name = FlatState {
            edges: vec![
                edge(0x20, 0x21, 0),
                edge(0x23, 0x60, 0),
                edge(0x61, 0x61, 2),
                edge(0x62, 0x7f, 0),
                edge(0xc2, 0xdf, 1),
            ],
            ..FlatState::default()
        };
        let mut states = [text, FlatState::default(), name];
        states[0].edges[1].high = 0x7f;
        share_edges(&mut states, &mut Fuel::new(1000)).unwrap();
        assert_eq!(
            (states[2].edges.as_slice(), states[2].default),
            (&[edge(0x61, 0x61, 2)][..], Some(0))
        );
    }
}
