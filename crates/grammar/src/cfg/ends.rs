//! Where rules end. The walk is greedy: at a place where a rule may end it goes on within the rule
//! if the next byte fits there, and leaves it only otherwise. So what may go on an ended rule must
//! not be what may follow a call of it. Where it is, the call is replaced by a copy of the rule,
//! whose states know what follows.

use super::components::{self, Components};
use crate::GrammarError;
use crate::dfa::{ByteSet, RuleDfa, RuleState, Sets, determinize_with_sets};
use crate::nfa::{Label, Nfa, RuleId};

/// Rounds in which a rule is copied into rules that it calls itself, at most: more do not help, as
/// each copy needs the next one.
const MOST_WITHIN_ITSELF: u32 = 8;
/// Copies of a rule that calls itself from which on it is blamed where steps run out.
const MANY_COPIES: u32 = 64;

/// Deterministic rules of which a greedy walk loses no text.
///
/// # Errors
/// Names a rule that is ambiguous within itself.
pub(super) fn settle<'a>(
    nfa: &mut Nfa,
    name: &impl Fn(RuleId) -> &'a str,
) -> Result<Vec<RuleDfa>, GrammarError> {
    let calls = components::of_calls(nfa)?;
    let mut within_itself = vec![0; nfa.num_rules()];
    let settled = settle_within_fuel(nfa, &mut within_itself, name);
    let Err(error @ GrammarError::TooLarge { .. }) = settled else { return settled };
    // It may be large because there was no end to the copies.
    let mut rules = 0..nfa.num_rules() as RuleId;
    if let Some(rule) = rules.clone().find(|&rule| within_itself[rule as usize] > 0) {
        return Err(ambiguous_end(name(rule)));
    }
    let is_copied = |&rule: &RuleId| calls.is_cyclic(rule) && nfa.copies(rule) >= MANY_COPIES;
    Err(rules.find(is_copied).map_or(error, |rule| {
        let what = "cannot be told from what else may be there by its next byte";
        GrammarError::unsupported(format!("a rule, `{}`, that {what},", name(rule)), "")
    }))
}

fn ambiguous_end(rule: &str) -> GrammarError {
    let what = "may, within itself, end where it may also go on";
    GrammarError::unsupported(format!("a rule, `{rule}`, that {what},"), "")
}

fn settle_within_fuel<'a>(
    nfa: &mut Nfa,
    within_itself: &mut [u32],
    name: &impl Fn(RuleId) -> &'a str,
) -> Result<Vec<RuleDfa>, GrammarError> {
    loop {
        let (rules, sets) = determinize_with_sets(nfa)?;
        let unclear = unclear_calls(&rules, nfa)?;
        if unclear.is_empty() {
            return Ok(rules);
        }
        let called = |rule: &RuleDfa| {
            rule.iter().flat_map(|state| state.calls.iter().map(|call| call.0)).collect()
        };
        let calls = Components::of_graph(&rules.iter().map(called).collect::<Vec<_>>());
        let joined = |call: &&Unclear| calls.are_joined(call.within, call.callee);
        let mut joined: Vec<RuleId> =
            unclear.iter().filter(joined).map(|call| call.callee).collect();
        joined.sort_unstable();
        joined.dedup();
        for rule in joined {
            within_itself[rule as usize] += 1;
            if within_itself[rule as usize] > MOST_WITHIN_ITSELF {
                return Err(ambiguous_end(name(rule)));
            }
        }
        for call in &unclear {
            replace_calls(nfa, &sets, call)?;
        }
    }
}

/// A call behind which may come what may also go on in the rule.
struct Unclear {
    within: RuleId,
    state: usize,
    callee: RuleId,
}

fn unclear_calls(rules: &[RuleDfa], nfa: &mut Nfa) -> Result<Vec<Unclear>, GrammarError> {
    let more = bytes_beyond_ends(rules, nfa)?;
    let mut unclear = Vec::new();
    for (within, rule) in (0..).zip(rules) {
        for (state, from) in rule.iter().enumerate() {
            nfa.fuel.burn(1 + 4 * from.calls.len())?;
            for &(callee, to) in &from.calls {
                if first_of(rules, &rule[to as usize]).meets(&more[callee as usize]) {
                    unclear.push(Unclear { within, state, callee });
                }
            }
        }
    }
    Ok(unclear)
}

/// For each rule the bytes that it may go on with where it, and all that it is within, may end.
fn bytes_beyond_ends(rules: &[RuleDfa], nfa: &mut Nfa) -> Result<Vec<ByteSet>, GrammarError> {
    let mut more = vec![ByteSet::default(); rules.len()];
    // Rules that a rule may end with.
    let mut last: Vec<(usize, RuleId)> = Vec::new();
    for (id, rule) in rules.iter().enumerate() {
        let is_again = starts_again(rule);
        for (state, at) in rule.iter().enumerate() {
            nfa.fuel.burn(1 + at.bytes.len() + 4 * at.calls.len())?;
            if at.is_final && (state > 0 || is_again) {
                more[id].union(&first_of(rules, at));
            }
            let ends = at.calls.iter().filter(|call| rule[call.1 as usize].is_final);
            last.extend(ends.map(|call| (id, call.0)));
        }
    }
    last.sort_unstable();
    last.dedup();
    let mut changed = true;
    while changed {
        changed = false;
        nfa.fuel.burn(last.len())?;
        for &(id, callee) in &last {
            let before = more[id];
            let inner = more[callee as usize];
            more[id].union(&inner);
            changed |= more[id] != before;
        }
    }
    Ok(more)
}

/// Whether a rule comes by its start again. Before its first byte it has not begun.
fn starts_again(rule: &RuleDfa) -> bool {
    rule.iter().any(|state| {
        state.bytes.iter().any(|edge| edge.2 == 0) || state.calls.iter().any(|call| call.1 == 0)
    })
}

/// The bytes that may come next within a rule.
fn first_of(rules: &[RuleDfa], state: &RuleState) -> ByteSet {
    let mut first = ByteSet::default();
    let starts = state.calls.iter().filter_map(|call| rules[call.0 as usize].first());
    for &(low, high, _) in state.bytes.iter().chain(starts.flat_map(|start| &start.bytes)) {
        first.add(low, high);
    }
    first
}

/// Replaces the calls that a state of a rule stands for.
fn replace_calls(nfa: &mut Nfa, sets: &[Sets], call: &Unclear) -> Result<(), GrammarError> {
    for &state in &sets[call.within as usize][call.state] {
        for index in 0..nfa.edges(state).len() {
            if nfa.edges(state)[index].label == Label::Call(call.callee) {
                nfa.inline_call(state, index)?;
            }
        }
    }
    Ok(())
}
