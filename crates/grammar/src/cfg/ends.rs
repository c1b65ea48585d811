//! Where rules end. The walk is greedy: at a place where a rule may end it goes on within the rule
//! if the next byte fits there, and leaves it only otherwise. So what may go on an ended rule must
//! not be what may follow a call of it. Where it is, the call is replaced by a copy of the rule,
//! whose states know what follows.

use super::components::{self, Components};
use crate::GrammarError;
use crate::dfa::{ByteSet, RuleDfa, RuleState, Sets, determinize_with_sets};
use crate::nfa::{Label, Nfa, RuleId, State};

/// Rounds in which a rule is copied into rules that it calls itself, at most: more do not help, as
/// each copy needs the next one.
const MOST_WITHIN_ITSELF: u32 = 8;
/// Copies of a rule that calls itself from which on it is blamed where steps run out.
const MANY_COPIES: u32 = 64;

/// Deterministic rules of which a greedy walk loses no text. Rules without a name are not copied:
/// they are of schemas, which say by their punctuation where a text ends. Of a number that digits
/// may follow the walk takes as many for the number as it may.
///
/// # Errors
/// Names a rule that is ambiguous within itself.
pub(super) fn settle(nfa: &mut Nfa, names: &[&str]) -> Result<Vec<RuleDfa>, GrammarError> {
    let calls = components::of_calls(nfa)?;
    let mut within_itself = vec![0; nfa.num_rules()];
    let settled = settle_within_fuel(nfa, &mut within_itself, names);
    let Err(error @ GrammarError::TooLarge { .. }) = settled else { return settled };
    // It may be large because there was no end to the copies.
    let mut rules = 0..nfa.num_rules() as RuleId;
    if let Some(rule) = rules.clone().find(|&rule| within_itself[rule as usize] > 0) {
        return Err(ambiguous_end(names[rule as usize]));
    }
    let is_copied = |&rule: &RuleId| {
        let is_named = !names[rule as usize].is_empty();
        is_named && calls.is_cyclic(rule) && nfa.copies(rule) >= MANY_COPIES
    };
    Err(rules.find(is_copied).map_or(error, |rule| {
        let what = "cannot be told from what else may be there by its next byte";
        GrammarError::unsupported(format!("a rule, `{}`, that {what},", names[rule as usize]), "")
    }))
}

fn ambiguous_end(rule: &str) -> GrammarError {
    let what = "may, within itself, end where it may also go on";
    GrammarError::unsupported(format!("a rule, `{rule}`, that {what},"), "")
}

fn settle_within_fuel(
    nfa: &mut Nfa,
    within_itself: &mut [u32],
    names: &[&str],
) -> Result<Vec<RuleDfa>, GrammarError> {
    loop {
        let (rules, sets) = determinize_with_sets(nfa)?;
        let made = Made { rules, sets };
        let unclear = unclear_calls(nfa, &made, names)?;
        if unclear.is_empty() {
            return Ok(made.rules);
        }
        let called = |rule: &RuleDfa| {
            rule.iter().flat_map(|state| state.calls.iter().map(|call| call.0)).collect()
        };
        let calls = Components::of_graph(&made.rules.iter().map(called).collect::<Vec<_>>());
        let joined = |call: &&Unclear| calls.are_joined(call.within, call.callee);
        let mut joined: Vec<RuleId> =
            unclear.iter().filter(joined).map(|call| call.callee).collect();
        joined.sort_unstable();
        joined.dedup();
        for rule in joined {
            within_itself[rule as usize] += 1;
            let is_own = unclear.iter().any(|call| call.within == rule && call.callee == rule);
            if is_own || within_itself[rule as usize] > MOST_WITHIN_ITSELF {
                return Err(ambiguous_end(names[rule as usize]));
            }
        }
        for call in &unclear {
            replace_calls(nfa, &made.sets, call)?;
        }
    }
}

/// A call behind which may come what may also go on in the rule.
struct Unclear {
    within: RuleId,
    state: usize,
    callee: RuleId,
}

fn unclear_calls(nfa: &mut Nfa, made: &Made, names: &[&str]) -> Result<Vec<Unclear>, GrammarError> {
    let ends = ends_of(nfa, made)?;
    let mut unclear = Vec::new();
    for (within, rule) in (0..).zip(&made.rules) {
        for (state, from) in rule.iter().enumerate() {
            nfa.fuel.burn(1 + 4 * from.calls.len())?;
            let named = from.calls.iter().filter(|call| !names[call.0 as usize].is_empty());
            for &(callee, to) in named {
                let Ends { more, for_good } = &ends[callee as usize];
                let next = made.first_of(&rule[to as usize]);
                let is_clear = !next.meets(more)
                    || !next.meets(for_good)
                        && made.taken_again(nfa, within, to)?.has_both(&next, more);
                if !is_clear {
                    unclear.push(Unclear { within, state, callee });
                }
            }
        }
    }
    Ok(unclear)
}

/// How a rule may go on where it, and all that it is within, may end.
#[derive(Clone, Copy, Default, PartialEq)]
struct Ends {
    /// The bytes.
    more: ByteSet,
    /// Those behind which it may not end at once.
    for_good: ByteSet,
}

fn ends_of(nfa: &mut Nfa, made: &Made) -> Result<Vec<Ends>, GrammarError> {
    let mut ends = vec![Ends::default(); made.rules.len()];
    // Rules that a rule may end with.
    let mut last: Vec<(usize, RuleId)> = Vec::new();
    for (id, rule) in made.rules.iter().enumerate() {
        let is_again = starts_again(rule);
        for (state, at) in rule.iter().enumerate() {
            nfa.fuel.burn(1 + at.bytes.len() + 4 * at.calls.len())?;
            if at.is_final && (state > 0 || is_again) {
                ends[id].more.union(&made.first_of(at));
                ends[id].for_good.union(&made.bytes_for_good(rule, at));
            }
            let is_last = at.calls.iter().filter(|call| rule[call.1 as usize].is_final);
            last.extend(is_last.map(|call| (id, call.0)));
        }
    }
    last.sort_unstable();
    last.dedup();
    let mut changed = true;
    while changed {
        changed = false;
        nfa.fuel.burn(last.len())?;
        for &(id, callee) in &last {
            let before = ends[id];
            let inner = ends[callee as usize];
            ends[id].more.union(&inner.more);
            ends[id].for_good.union(&inner.for_good);
            changed |= ends[id] != before;
        }
    }
    Ok(ends)
}

/// Whether a rule comes by its start again. Before its first byte it has not begun.
fn starts_again(rule: &RuleDfa) -> bool {
    rule.iter().any(|state| {
        state.bytes.iter().any(|edge| edge.2 == 0) || state.calls.iter().any(|call| call.1 == 0)
    })
}

/// Deterministic rules, and the states of the rules as written that theirs stand for.
struct Made {
    rules: Vec<RuleDfa>,
    sets: Vec<Sets>,
}

impl Made {
    fn start_of(&self, rule: RuleId) -> &[(u8, u8, u32)] {
        self.rules[rule as usize].first().map_or(&[], |start| &start.bytes)
    }

    /// The bytes that may come next within a rule.
    fn first_of(&self, state: &RuleState) -> ByteSet {
        let called = state.calls.iter().flat_map(|call| self.start_of(call.0));
        set_of(state.bytes.iter().chain(called))
    }

    /// The bytes of a state behind which its rule may not end at once.
    fn bytes_for_good(&self, rule: &RuleDfa, state: &RuleState) -> ByteSet {
        let stays = |rule: &RuleDfa, to: u32| !rule[to as usize].is_final;
        let mut bytes = set_of(state.bytes.iter().filter(|edge| stays(rule, edge.2)));
        for &(callee, to) in &state.calls {
            let inner = &self.rules[callee as usize];
            let called = self.start_of(callee).iter();
            let called = called.filter(|edge| stays(rule, to) || stays(inner, edge.2));
            bytes.union(&set_of(called));
        }
        bytes
    }

    /// The bytes of a state behind which whatever may come might have come in their place, as with
    /// white space that repeats: a rule before may take them just as well.
    fn taken_again(
        &self,
        nfa: &mut Nfa,
        rule: RuleId,
        state: u32,
    ) -> Result<ByteSet, GrammarError> {
        let at = &self.rules[rule as usize][state as usize];
        let sets = &self.sets[rule as usize];
        let mut bytes = ByteSet::default();
        for &(low, high, to) in &at.bytes {
            nfa.fuel.burn(sets[to as usize].len())?;
            if is_within(&sets[to as usize], &sets[state as usize]) {
                bytes.add(low, high);
            }
        }
        for &(callee, _) in &at.calls {
            let sets = &self.sets[callee as usize];
            for &(low, high, to) in self.start_of(callee) {
                nfa.fuel.burn(sets[to as usize].len())?;
                if is_within(&sets[to as usize], &sets[0]) {
                    bytes.add(low, high);
                }
            }
        }
        Ok(bytes)
    }
}

fn set_of<'a>(edges: impl Iterator<Item = &'a (u8, u8, u32)>) -> ByteSet {
    let mut bytes = ByteSet::default();
    edges.for_each(|edge| bytes.add(edge.0, edge.1));
    bytes
}

/// All of `part` is in `whole`; both are sorted.
fn is_within(part: &[State], whole: &[State]) -> bool {
    part.iter().all(|state| whole.binary_search(state).is_ok())
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
