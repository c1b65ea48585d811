//! Joins deterministic rules into one automaton: a call becomes edges on the callee's first bytes
//! that remember where to return. States from which no text can be completed within the stack are
//! left out.

use crate::GrammarError;
use crate::dfa::{RuleDfa, RuleState};
use crate::fuel::Fuel;
use crate::words::MAX_STACK;

/// An edge of the automaton.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlatEdge {
    pub(crate) low: u8,
    pub(crate) high: u8,
    pub(crate) target: u32,
    /// Where to go on when the rule that this edge enters is over.
    pub(crate) push: Option<u32>,
}

/// A state of the automaton; the first one is its start.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlatState {
    /// The rule may be over: what the stack names goes on.
    pub(crate) is_final: bool,
    /// Places of the stack that the shortest way out of the rule takes.
    pub(crate) need: u32,
    /// How much plain text may follow (`plain.rs`).
    pub(crate) plain: u8,
    /// Disjoint, ascending.
    pub(crate) edges: Vec<FlatEdge>,
    /// The state whose edges cover the bytes that these do not (`defaults.rs`).
    pub(crate) default: Option<u32>,
}

/// No way out.
const NEVER: u32 = u32::MAX;

/// One automaton of all rules; the first rule is the answer's.
pub(crate) fn assemble(rules: &[RuleDfa], fuel: &mut Fuel) -> Result<Vec<FlatState>, GrammarError> {
    let mut first = Vec::with_capacity(rules.len());
    let mut count = 0;
    for rule in rules {
        first.push(count);
        count += rule.len() as u32;
    }
    let mut states = Vec::with_capacity(count as usize);
    for (rule, &offset) in rules.iter().zip(&first) {
        for state in rule {
            let edges = edges_of(rules, &first, rule, offset, state);
            fuel.burn(1 + 2 * edges.len())?;
            states.push(FlatState {
                is_final: state.is_final,
                need: NEVER,
                edges,
                ..FlatState::default()
            });
        }
    }
    find_needs(&mut states, fuel)?;
    trim(states)
}

fn edges_of(
    rules: &[RuleDfa],
    first: &[u32],
    rule: &RuleDfa,
    offset: u32,
    state: &RuleState,
) -> Vec<FlatEdge> {
    let mut edges: Vec<FlatEdge> = state
        .bytes
        .iter()
        .map(|&(low, high, to)| FlatEdge { low, high, target: offset + to, push: None })
        .collect();
    for &(callee, to) in &state.calls {
        let back = &rule[to as usize];
        // Where nothing follows, the callee's end is the caller's.
        let tail = back.is_final && back.bytes.is_empty() && back.calls.is_empty();
        let push = (!tail).then_some(offset + to);
        let start = rules[callee as usize].first();
        edges.extend(start.into_iter().flat_map(|start| &start.bytes).map(|&(low, high, to)| {
            FlatEdge { low, high, target: first[callee as usize] + to, push }
        }));
    }
    edges.sort_unstable_by_key(|edge| edge.low);
    edges
}

/// The stack that an edge's way out takes.
fn need_of(states: &[FlatState], edge: &FlatEdge) -> u32 {
    let inside = states[edge.target as usize].need;
    match edge.push {
        None => inside,
        Some(back) => inside.saturating_add(1).max(states[back as usize].need),
    }
}

/// Fills in every state's need: from the ends backwards, until nothing changes.
fn find_needs(states: &mut [FlatState], fuel: &mut Fuel) -> Result<(), GrammarError> {
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); states.len()];
    for (i, state) in states.iter().enumerate() {
        for edge in &state.edges {
            for next in std::iter::once(edge.target).chain(edge.push) {
                if before[next as usize].last() != Some(&(i as u32)) {
                    before[next as usize].push(i as u32);
                }
            }
        }
    }
    let mut open: Vec<u32> = Vec::new();
    for (i, state) in states.iter_mut().enumerate() {
        if state.is_final {
            state.need = 0;
            open.extend(&before[i]);
        }
    }
    while let Some(i) = open.pop() {
        let state = &states[i as usize];
        fuel.burn(1 + state.edges.len())?;
        let least = state.edges.iter().map(|edge| need_of(states, edge)).min().unwrap_or(NEVER);
        if least < state.need {
            states[i as usize].need = least;
            open.extend(&before[i as usize]);
        }
    }
    Ok(())
}

/// Keeps what can be reached and completed, in the order in which it is found from the start.
fn trim(states: Vec<FlatState>) -> Result<Vec<FlatState>, GrammarError> {
    let fits = |need: u32| need <= MAX_STACK as u32;
    if !fits(states[0].need) {
        return Err(GrammarError::Unsatisfiable);
    }
    let mut names = vec![NEVER; states.len()];
    let mut order = vec![0_u32];
    names[0] = 0;
    let mut kept = Vec::new();
    while kept.len() < order.len() {
        let state = &states[order[kept.len()] as usize];
        let mut name = |old: u32| {
            if names[old as usize] == NEVER {
                names[old as usize] = order.len() as u32;
                order.push(old);
            }
            names[old as usize]
        };
        let mut edges = Vec::new();
        for edge in state.edges.iter().filter(|edge| fits(need_of(&states, edge))) {
            let (target, push) = (name(edge.target), edge.push.map(&mut name));
            edges.push(FlatEdge { target, push, ..*edge });
        }
        let (is_final, need) = (state.is_final, state.need);
        kept.push(FlatState { is_final, need, edges, ..FlatState::default() });
    }
    Ok(kept)
}
