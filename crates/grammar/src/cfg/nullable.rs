//! Rules that may be empty. The walk enters a rule on a byte, so a call of such a rule gets a way
//! around it.

use crate::GrammarError;
use crate::nfa::{Label, Nfa, RuleId, State};

/// Adds an edge that takes nothing beside each call of a rule that may be empty.
pub(super) fn go_around(nfa: &mut Nfa) -> Result<(), GrammarError> {
    let mut calls: Vec<Call> = Vec::new();
    for rule in 0..nfa.num_rules() as RuleId {
        for state in nfa.states_of(rule)? {
            calls.extend(nfa.edges(state).iter().filter_map(|edge| match edge.label {
                Label::Call(callee) => {
                    Some(Call { within: rule, callee, from: state, to: edge.to })
                }
                _ => None,
            }));
        }
    }
    calls.sort_unstable_by_key(|call| call.callee);
    let calls_of = |rule: RuleId| {
        let begin = calls.partition_point(|call| call.callee < rule);
        calls[begin..].iter().take_while(move |call| call.callee == rule)
    };
    // A rule that turns out to be empty adds ways through the rules that call it.
    let mut is_empty = vec![false; nfa.num_rules()];
    let mut open: Vec<RuleId> = (0..nfa.num_rules() as RuleId).collect();
    while let Some(rule) = open.pop() {
        if is_empty[rule as usize] || !may_be_empty(nfa, rule)? {
            continue;
        }
        is_empty[rule as usize] = true;
        for call in calls_of(rule) {
            nfa.skip(call.from, call.to)?;
            open.push(call.within);
        }
    }
    Ok(())
}

struct Call {
    within: RuleId,
    callee: RuleId,
    from: State,
    to: State,
}

/// The rule's end can be reached without taking anything.
fn may_be_empty(nfa: &mut Nfa, rule: RuleId) -> Result<bool, GrammarError> {
    let rule = nfa.rule(rule);
    Ok(crate::dfa::closure(nfa, vec![rule.start])?.binary_search(&rule.end).is_ok())
}
