//! States from which plain text may go on for a while: any [`PLAIN_CHARS`] characters but `"`, `\`
//! and controls, whatever the stack holds. There the device knows the tokens of such characters
//! beforehand (`device/grammar/mask.hpp`) and need not walk them.

use crate::GrammarError;
use crate::assemble::{FlatEdge, FlatState};
use crate::fuel::Fuel;
use crate::utf8::byte_sequences;

/// Characters that may follow at least (`SAC_GRAMMAR_PLAIN_BYTES`: a character has a byte or more).
pub(crate) const PLAIN_CHARS: usize = 32;
/// Places of the stack that they take at most (`SAC_GRAMMAR_PLAIN_PLACES`).
pub(crate) const PLAIN_PLACES: u32 = 8;
/// What JSON strings and texts take as it is.
const PLAIN: [(char, char); 4] = [(' ', '!'), ('#', '['), (']', '~'), ('\u{80}', char::MAX)];

/// Where a character leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// To a state, with another one pushed.
    State(u32, Option<u32>),
    /// Out of the rule, before it was taken: to what the stack has.
    Return,
}

/// For each state, whether it is plain.
pub(crate) fn plain_states(
    states: &[FlatState],
    fuel: &mut Fuel,
) -> Result<Vec<bool>, GrammarError> {
    let mut after: Vec<Option<Vec<After>>> = Vec::with_capacity(states.len());
    for (i, state) in states.iter().enumerate() {
        fuel.burn(1 + state.edges.len())?;
        after.push(if takes_letters(state) { after_char(states, i as u32) } else { None });
    }
    if after.iter().all(Option::is_none) {
        return Ok(vec![false; states.len()]);
    }
    let chars = chars_ahead(states, &after, fuel)?;
    let places = places_ahead(states, &after, fuel)?;
    let is_plain = |i: usize| usize::from(chars[i]) >= PLAIN_CHARS && places[i] <= PLAIN_PLACES;
    Ok((0..states.len()).map(is_plain).collect())
}

/// A cheap look before the thorough one. What does not take letters itself may be about to return.
fn takes_letters(state: &FlatState) -> bool {
    let takes = |edge: &FlatEdge| edge.low <= b'a' && edge.high >= b'z';
    state.is_final || state.edges.iter().any(takes)
}

/// Where plain characters lead from a state; none, if not all of them are taken or return.
fn after_char(states: &[FlatState], state: u32) -> Option<Vec<After>> {
    let mut all = Vec::new();
    for sequence in PLAIN.iter().flat_map(|&(low, high)| byte_sequences(low, high)) {
        follow(states, (state, None), &sequence, false, &mut all)?;
    }
    Some(all)
}

/// Follows the bytes of a character from a state, with a state pushed since its first byte.
fn follow(
    states: &[FlatState],
    (state, pushed): (u32, Option<u32>),
    bytes: &[(u8, u8)],
    begun: bool,
    all: &mut Vec<After>,
) -> Option<()> {
    let state_now = &states[state as usize];
    let Some((&(low, high), rest)) = bytes.split_first() else {
        // A rule that is over here returns at once.
        let after = match pushed {
            Some(back) if state_now.is_final && state_now.edges.is_empty() => {
                After::State(back, None)
            }
            _ => After::State(state, pushed),
        };
        if !all.contains(&after) {
            all.push(after);
        }
        return Some(());
    };
    let mut next = u16::from(low);
    let mut has_gap = false;
    for edge in state_now.edges.iter().filter(|edge| edge.low <= high && low <= edge.high) {
        has_gap |= u16::from(edge.low) > next;
        next = u16::from(edge.high) + 1;
        if pushed.is_some() && edge.push.is_some() {
            return None;
        }
        follow(states, (edge.target, edge.push.or(pushed)), rest, true, all)?;
    }
    if !has_gap && next > u16::from(high) {
        return Some(());
    }
    if !state_now.is_final || begun {
        return None;
    }
    if !all.contains(&After::Return) {
        all.push(After::Return);
    }
    Some(())
}

/// Plain characters that may follow each state at least, up to [`PLAIN_CHARS`]: the greatest
/// numbers of which each is one more than the least of those that a character leads to.
fn chars_ahead(
    states: &[FlatState],
    after: &[Option<Vec<After>>],
    fuel: &mut Fuel,
) -> Result<Vec<u8>, GrammarError> {
    let most = PLAIN_CHARS as u8;
    let mut chars: Vec<u8> = after.iter().map(|a| if a.is_some() { most } else { 0 }).collect();
    // The least that may follow where a state's rule returns to; the answer's rule does not.
    let mut behind = vec![most; states.len()];
    behind[0] = 0;
    let mut changed = true;
    while changed {
        changed = false;
        for (i, state) in states.iter().enumerate() {
            fuel.burn(1 + state.edges.len() / 4)?;
            for edge in &state.edges {
                let least = edge.push.map_or(behind[i], |back| chars[back as usize]);
                let old = &mut behind[edge.target as usize];
                changed |= least < *old;
                *old = least.min(*old);
            }
            let ahead = |after: &After| match *after {
                After::State(to, _) => chars[to as usize].saturating_add(1).min(most),
                After::Return => behind[i],
            };
            let least = after[i].iter().flatten().map(ahead).min().unwrap_or(0);
            changed |= least < chars[i];
            chars[i] = least.min(chars[i]);
        }
    }
    Ok(chars)
}

/// Places of the stack that must be free for plain characters from each state on: those that they
/// push, and those that the ways out need meanwhile. The least numbers that hold, up to one beyond
/// [`PLAIN_PLACES`].
fn places_ahead(
    states: &[FlatState],
    after: &[Option<Vec<After>>],
    fuel: &mut Fuel,
) -> Result<Vec<u32>, GrammarError> {
    let mut places = vec![0_u32; states.len()];
    // The same from where a state's rule returns to, seen from the rule.
    let mut behind = vec![0_u32; states.len()];
    let need = |state: u32| states[state as usize].need;
    let mut changed = true;
    while changed {
        changed = false;
        for (i, state) in states.iter().enumerate() {
            fuel.burn(1 + state.edges.len() / 4)?;
            for edge in &state.edges {
                let most =
                    edge.push.map_or(behind[i], |back| places[back as usize].saturating_sub(1));
                let old = &mut behind[edge.target as usize];
                changed |= most > *old;
                *old = most.max(*old);
            }
            let at = |state: u32| places[state as usize].max(need(state));
            let ahead = |after: &After| match *after {
                After::State(to, None) => at(to),
                After::State(to, Some(back)) => (at(to) + 1).max(at(back)),
                After::Return => behind[i],
            };
            let most = after[i].iter().flatten().map(ahead).max().unwrap_or(0);
            let most = most.min(PLAIN_PLACES + 1);
            changed |= most > places[i];
            places[i] = most.max(places[i]);
        }
    }
    Ok(places)
}
