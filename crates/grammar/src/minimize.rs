//! Merges states that no text can tell apart: partition refinement by what their edges lead to.

use std::collections::HashMap;

use crate::GrammarError;
use crate::assemble::{FlatEdge, FlatState};
use crate::fuel::Fuel;

/// The same automaton with fewer states; the first stays the first.
pub(crate) fn minimize(
    states: Vec<FlatState>,
    fuel: &mut Fuel,
) -> Result<Vec<FlatState>, GrammarError> {
    let mut class: Vec<u32> = vec![0; states.len()];
    let mut count = 0;
    loop {
        let mut names: HashMap<(u32, bool, u32, Vec<FlatEdge>), u32> = HashMap::new();
        let mut next = Vec::with_capacity(states.len());
        for (state, &old) in states.iter().zip(&class) {
            fuel.burn(2 + 2 * state.edges.len())?;
            let key = (old, state.is_final, state.need, renamed(&state.edges, &class));
            let fresh = names.len() as u32;
            next.push(*names.entry(key).or_insert(fresh));
        }
        class = next;
        if names.len() == count {
            break;
        }
        count = names.len();
    }
    // Classes are numbered in order of their first states.
    let mut kept: Vec<FlatState> = Vec::with_capacity(count);
    for (state, &name) in states.iter().zip(&class) {
        if name as usize == kept.len() {
            let edges = renamed(&state.edges, &class);
            kept.push(FlatState { is_final: state.is_final, need: state.need, edges });
        }
    }
    Ok(kept)
}

/// Edges between classes; neighbours that lead to the same are joined.
fn renamed(edges: &[FlatEdge], class: &[u32]) -> Vec<FlatEdge> {
    let name = |state: u32| class[state as usize];
    let mut joined: Vec<FlatEdge> = Vec::with_capacity(edges.len());
    for edge in edges {
        let new = FlatEdge { target: name(edge.target), push: edge.push.map(name), ..*edge };
        match joined.last_mut() {
            Some(last)
                if u16::from(last.high) + 1 == u16::from(new.low)
                    && (last.target, last.push) == (new.target, new.push) =>
            {
                last.high = new.high;
            }
            _ => joined.push(new),
        }
    }
    joined
}
