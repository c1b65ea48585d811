//! Recursion that is no nesting: at the beginning of a rule, where the walk would have to know how
//! often, and at its end, where it is a loop.

use super::components::{self, Components};
use crate::GrammarError;
use crate::dfa::closure;
use crate::nfa::{Edge, Label, Nfa, RuleId, State};

/// Rewrites rules whose texts may begin with texts of themselves (Paull's algorithm): of rules that
/// begin with each other, the later ones get copies of the earlier ones; then `e ::= e x | y`
/// becomes `y x*`.
///
/// # Errors
/// Names a rule that this does not help, because what is before the recursion may be empty.
pub(super) fn remove_left(nfa: &mut Nfa, names: &[&str]) -> Result<(), GrammarError> {
    let first = components::of_first_calls(nfa)?;
    for rule in (0..nfa.num_rules() as RuleId).filter(|&rule| first.is_cyclic(rule)) {
        loop {
            flatten_start(nfa, rule)?;
            let start = nfa.rule(rule).start;
            let is_earlier = |edge: &Edge| match edge.label {
                Label::Call(callee) => callee < rule && first.are_joined(callee, rule),
                _ => false,
            };
            match nfa.edges(start).iter().position(is_earlier) {
                Some(index) => nfa.inline_call(start, index)?,
                None => break,
            }
        }
        repeat_what_is_behind(nfa, rule)?;
    }
    let left = components::of_first_calls(nfa)?;
    match (0..nfa.num_rules() as RuleId).find(|&rule| left.is_cyclic(rule)) {
        None => Ok(()),
        Some(rule) => {
            let name = format!("the left recursion of the rule `{}`", names[rule as usize]);
            Err(GrammarError::unsupported(name, ""))
        }
    }
}

/// Gives a rule a start that nothing else leads to, with all first edges at it.
fn flatten_start(nfa: &mut Nfa, rule: RuleId) -> Result<(), GrammarError> {
    let old = nfa.rule(rule);
    let start = nfa.state()?;
    for state in closure(nfa, vec![old.start])? {
        for edge in nfa.edges(state).to_vec() {
            if edge.label != Label::Empty {
                nfa.edge(start, edge.label, edge.to)?;
            }
        }
        if state == old.end {
            nfa.skip(start, old.end)?;
        }
    }
    nfa.set_start(rule, start);
    Ok(())
}

/// What follows the rule's calls of itself at its start may follow its end instead, any number of
/// times.
fn repeat_what_is_behind(nfa: &mut Nfa, rule: RuleId) -> Result<(), GrammarError> {
    let of_rule = nfa.rule(rule);
    for index in 0..nfa.edges(of_rule.start).len() {
        let edge = nfa.edges(of_rule.start)[index];
        if edge.label == Label::Call(rule) {
            // Nothing leads to a start but calls: an edge to itself is no way.
            let gone = Edge { label: Label::Empty, to: of_rule.start };
            nfa.replace_edge(of_rule.start, index, gone);
            nfa.skip(of_rule.end, edge.to)?;
        }
    }
    Ok(())
}

/// Makes loops of a rule's calls of itself at its end. Rules that call each other nowhere else
/// become loops as well: the later ones get copies of the earlier ones.
pub(super) fn make_loops(nfa: &mut Nfa, calls: &Components) -> Result<(), GrammarError> {
    // Components, which are at most as many as rules.
    let mut is_regular = vec![true; nfa.num_rules()];
    for rule in 0..nfa.num_rules() as RuleId {
        if calls_within(nfa, rule, calls)?.iter().any(|call| !call.is_last) {
            is_regular[calls.of_rule(rule)] = false;
        }
    }
    for rule in 0..nfa.num_rules() as RuleId {
        let is_regular = is_regular[calls.of_rule(rule)];
        loop {
            let within = calls_within(nfa, rule, calls)?;
            let mut last = within.iter().filter(|call| call.is_last);
            for call in last.clone().filter(|call| call.callee == rule) {
                let start = nfa.rule(rule).start;
                nfa.replace_edge(call.from, call.index, Edge { label: Label::Empty, to: start });
            }
            match last.find(|call| is_regular && call.callee < rule) {
                Some(call) => nfa.inline_call(call.from, call.index)?,
                None => break,
            }
        }
    }
    Ok(())
}

/// A call of a rule that calls back.
struct Call {
    callee: RuleId,
    from: State,
    index: usize,
    /// Nothing comes behind it.
    is_last: bool,
}

fn calls_within(
    nfa: &mut Nfa,
    rule: RuleId,
    calls: &Components,
) -> Result<Vec<Call>, GrammarError> {
    let mut within = Vec::new();
    if !calls.is_cyclic(rule) {
        return Ok(within);
    }
    let end = nfa.rule(rule).end;
    for from in nfa.states_of(rule)? {
        for (index, edge) in nfa.edges(from).iter().enumerate() {
            if let Label::Call(callee) = edge.label
                && calls.are_joined(rule, callee)
            {
                within.push(Call { callee, from, index, is_last: leads_to(nfa, edge.to, end) });
            }
        }
    }
    Ok(within)
}

/// Nothing but `end` comes behind a state.
fn leads_to(nfa: &Nfa, state: State, end: State) -> bool {
    let mut at = state;
    for _ in 0..nfa.num_states() {
        match nfa.edges(at) {
            _ if at == end => return true,
            [Edge { label: Label::Empty, to }] => at = *to,
            _ => return false,
        }
    }
    false
}
