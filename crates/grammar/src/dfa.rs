//! Makes every rule that the answer can reach deterministic: by the next byte alone it is known
//! which edge to take, or which rule to call. A call that could be taken for something else is
//! replaced by a copy of its rule.

use ahash::AHashMap;

use crate::GrammarError;
use crate::nfa::{Label, Nfa, RuleId, State};

/// A state of a deterministic rule; numbers of states are the rule's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleState {
    /// A text of the rule may end here.
    pub(crate) is_final: bool,
    /// Disjoint, ascending.
    pub(crate) bytes: Vec<(u8, u8, u32)>,
    /// Rules with disjoint first bytes, disjoint from `bytes`: the rule, where it returns to.
    pub(crate) calls: Vec<(RuleId, u32)>,
}

/// A deterministic rule; it starts in its first state. Rules that are not reached have no states.
pub(crate) type RuleDfa = Vec<RuleState>;

/// A set of bytes.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(crate) fn add(&mut self, low: u8, high: u8) {
        for byte in low..=high {
            self.0[usize::from(byte) / 64] |= 1 << (byte % 64);
        }
    }
    pub(crate) fn meets(&self, other: &ByteSet) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }
    /// Has each byte that two sets share.
    pub(crate) fn has_both(&self, a: &ByteSet, b: &ByteSet) -> bool {
        self.0.iter().zip(a.0.iter().zip(&b.0)).all(|(has, (a, b))| a & b & !has == 0)
    }
    pub(crate) fn union(&mut self, other: &ByteSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// The states of an [`Nfa`] that each state of a deterministic rule stands for.
pub(crate) type Sets = Vec<Vec<State>>;

/// All rules by their ids.
pub(crate) fn determinize(nfa: &mut Nfa) -> Result<Vec<RuleDfa>, GrammarError> {
    determinize_with_sets(nfa).map(|(rules, _)| rules)
}

/// All rules by their ids, with what their states stand for.
pub(crate) fn determinize_with_sets(
    nfa: &mut Nfa,
) -> Result<(Vec<RuleDfa>, Vec<Sets>), GrammarError> {
    let mut rules: Vec<RuleDfa> = vec![Vec::new(); nfa.num_rules()];
    let mut sets: Vec<Sets> = vec![Vec::new(); nfa.num_rules()];
    let mut open = vec![0];
    let mut firsts = AHashMap::new();
    while let Some(id) = open.pop() {
        if !rules[id as usize].is_empty() {
            continue;
        }
        let (dfa, its_sets) = Subsets::of(nfa, &mut firsts, id)?;
        open.extend(dfa.iter().flat_map(|state| state.calls.iter().map(|call| call.0)));
        rules[id as usize] = dfa;
        sets[id as usize] = its_sets;
    }
    Ok((rules, sets))
}

/// The subset construction for one rule.
struct Subsets<'a> {
    nfa: &'a mut Nfa,
    /// First bytes of rules, as far as they were asked for.
    firsts: &'a mut AHashMap<RuleId, ByteSet>,
    ids: AHashMap<Vec<State>, u32>,
    sets: Sets,
}

/// What leaves a set of states.
#[derive(Default)]
struct Leaving {
    bytes: Vec<(u8, u8, State)>,
    calls: Vec<(RuleId, Vec<State>)>,
}

impl<'a> Subsets<'a> {
    fn of(
        nfa: &'a mut Nfa,
        firsts: &'a mut AHashMap<RuleId, ByteSet>,
        id: RuleId,
    ) -> Result<(RuleDfa, Sets), GrammarError> {
        let rule = nfa.rule(id);
        let mut subsets = Subsets { nfa, firsts, ids: AHashMap::new(), sets: Vec::new() };
        subsets.id_of(vec![rule.start])?;
        let mut states = Vec::new();
        while states.len() < subsets.sets.len() {
            // A caller must see the rule's first bytes, not another call.
            let starts_rule = states.is_empty() && id != 0;
            let leaving = subsets.leaving(states.len(), starts_rule)?;
            let mut state = RuleState {
                is_final: subsets.sets[states.len()].contains(&rule.end),
                bytes: subsets.split(leaving.bytes)?,
                calls: Vec::new(),
            };
            for (rule, targets) in leaving.calls {
                let target = subsets.id_of(targets)?;
                state.calls.push((rule, target));
            }
            states.push(state);
        }
        Ok((states, subsets.sets))
    }

    /// The number of the set that these states reach without taking anything.
    fn id_of(&mut self, states: Vec<State>) -> Result<u32, GrammarError> {
        let set = closure(self.nfa, states)?;
        if let Some(&id) = self.ids.get(&set) {
            return Ok(id);
        }
        let id = self.sets.len() as u32;
        self.nfa.fuel.burn(16 + 2 * set.len())?;
        self.ids.insert(set.clone(), id);
        self.sets.push(set);
        Ok(id)
    }

    /// What leaves a set, after calls that are ambiguous were replaced.
    fn leaving(&mut self, set: usize, starts_rule: bool) -> Result<Leaving, GrammarError> {
        // A call that was replaced meanwhile may be in this set as well.
        self.sets[set] = closure(self.nfa, std::mem::take(&mut self.sets[set]))?;
        while let Some((state, index)) = self.ambiguous_call(set, starts_rule)? {
            self.nfa.inline_call(state, index)?;
            self.sets[set] = closure(self.nfa, std::mem::take(&mut self.sets[set]))?;
        }
        let mut leaving = Leaving::default();
        for &state in &self.sets[set] {
            for edge in self.nfa.edges(state) {
                match edge.label {
                    Label::Empty => {}
                    Label::Bytes(low, high) => leaving.bytes.push((low, high, edge.to)),
                    Label::Call(rule) => {
                        match leaving.calls.iter_mut().find(|call| call.0 == rule) {
                            Some(call) => call.1.push(edge.to),
                            None => leaving.calls.push((rule, vec![edge.to])),
                        }
                    }
                }
            }
        }
        Ok(leaving)
    }

    /// A call whose first bytes are also those of something else in the set; at the start of a
    /// rule, any call.
    fn ambiguous_call(
        &mut self,
        set: usize,
        starts_rule: bool,
    ) -> Result<Option<(State, usize)>, GrammarError> {
        let mut bytes = ByteSet::default();
        let mut calls: Vec<(RuleId, State, usize)> = Vec::new();
        for &state in &self.sets[set] {
            for (index, edge) in self.nfa.edges(state).iter().enumerate() {
                match edge.label {
                    Label::Empty => {}
                    Label::Bytes(low, high) => bytes.add(low, high),
                    Label::Call(rule) => calls.push((rule, state, index)),
                }
            }
        }
        self.nfa.fuel.burn(self.sets[set].len() + 4 * calls.len())?;
        if starts_rule {
            return Ok(calls.first().map(|&(_, state, index)| (state, index)));
        }
        let mut firsts: Vec<(RuleId, ByteSet)> = Vec::new();
        for &(rule, state, index) in &calls {
            if firsts.iter().any(|first| first.0 == rule) {
                continue;
            }
            let first = match self.firsts.get(&rule) {
                Some(first) => *first,
                None => *self.firsts.entry(rule).or_insert(first_bytes(self.nfa, rule)?),
            };
            if first.meets(&bytes) || firsts.iter().any(|other| other.1.meets(&first)) {
                return Ok(Some((state, index)));
            }
            firsts.push((rule, first));
        }
        Ok(None)
    }

    /// Disjoint ranges with the sets that they lead to; neighbours that lead to one set are joined.
    fn split(&mut self, edges: Vec<(u8, u8, State)>) -> Result<Vec<(u8, u8, u32)>, GrammarError> {
        let mut cuts: Vec<u16> =
            edges.iter().flat_map(|e| [u16::from(e.0), u16::from(e.1) + 1]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut ranges: Vec<(u8, u8, u32)> = Vec::new();
        for pair in cuts.windows(2) {
            let (low, high) = (pair[0] as u8, (pair[1] - 1) as u8);
            self.nfa.fuel.burn(edges.len())?;
            let covers = |e: &&(u8, u8, State)| e.0 <= low && high <= e.1;
            let targets: Vec<State> = edges.iter().filter(covers).map(|e| e.2).collect();
            if targets.is_empty() {
                continue;
            }
            let target = self.id_of(targets)?;
            match ranges.last_mut() {
                Some(last) if last.2 == target && last.1 + 1 == low => last.1 = high,
                _ => ranges.push((low, high, target)),
            }
        }
        Ok(ranges)
    }
}

/// The states that these reach without taking anything, sorted, themselves included.
pub(crate) fn closure(nfa: &mut Nfa, states: Vec<State>) -> Result<Vec<State>, GrammarError> {
    nfa.marks.clear(nfa.num_states());
    let mut set = states;
    set.retain(|&state| nfa.marks.mark(state));
    let (mut done, mut steps) = (0, 0);
    while done < set.len() {
        let state = set[done];
        done += 1;
        steps += 1 + nfa.edges(state).len();
        for index in 0..nfa.edges(state).len() {
            let edge = nfa.edges(state)[index];
            if edge.label == Label::Empty && nfa.marks.mark(edge.to) {
                set.push(edge.to);
            }
        }
    }
    nfa.fuel.burn(2 * steps)?;
    set.sort_unstable();
    Ok(set)
}

/// The bytes that a rule's texts begin with.
fn first_bytes(nfa: &mut Nfa, rule: RuleId) -> Result<ByteSet, GrammarError> {
    let mut first = ByteSet::default();
    let mut seen = vec![rule];
    let mut open = vec![rule];
    while let Some(rule) = open.pop() {
        let start = nfa.rule(rule).start;
        for state in closure(nfa, vec![start])? {
            for edge in nfa.edges(state) {
                match edge.label {
                    Label::Empty => {}
                    Label::Bytes(low, high) => {
                        let mut set = ByteSet::default();
                        set.add(low, high);
                        first.union(&set);
                    }
                    Label::Call(callee) if !seen.contains(&callee) => {
                        seen.push(callee);
                        open.push(callee);
                    }
                    Label::Call(_) => {}
                }
            }
        }
    }
    Ok(first)
}
