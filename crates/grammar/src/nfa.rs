//! Rules as nondeterministic automata over bytes whose edges may call other rules. Fragments are
//! built between two given states, so that alternatives and continuations share states.

use std::collections::HashMap;

use crate::GrammarError;
use crate::fuel::Fuel;
use crate::utf8::byte_sequences;

pub(crate) type State = u32;
pub(crate) type RuleId = u32;

/// What an edge takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    /// Nothing.
    Empty,
    /// One byte from this to that.
    Bytes(u8, u8),
    /// A text of a rule.
    Call(RuleId),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) label: Label,
    pub(crate) to: State,
}

/// A rule: the texts that lead from one state to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) start: State,
    pub(crate) end: State,
}

/// All rules; the first one is the answer's.
pub(crate) struct Nfa {
    states: Vec<Vec<Edge>>,
    rules: Vec<Rule>,
    /// How often a call of each rule was replaced by a copy.
    copies: Vec<u32>,
    /// Why the rules may lack texts.
    pub(crate) left_out: Option<GrammarError>,
    /// For walks over the states.
    pub(crate) marks: Marks,
    pub(crate) fuel: Fuel,
}

/// States that a walk has seen; clearing them takes no time.
#[derive(Default)]
pub(crate) struct Marks {
    seen_in: Vec<u32>,
    walk: u32,
}

impl Marks {
    /// Marks none of `num_states` states.
    pub(crate) fn clear(&mut self, num_states: usize) {
        self.seen_in.resize(num_states, 0);
        self.walk += 1;
    }
    /// Marks a state; false if it was marked already.
    pub(crate) fn mark(&mut self, state: State) -> bool {
        std::mem::replace(&mut self.seen_in[state as usize], self.walk) != self.walk
    }
}

/// Steps that a state or an edge costs: their memory, and what is done with them later.
const STEPS_PER_PART: usize = 8;

impl Nfa {
    pub(crate) fn new(fuel: Fuel) -> Nfa {
        let states = vec![Vec::new(), Vec::new()];
        Nfa {
            states,
            rules: vec![Rule { start: 0, end: 1 }],
            copies: vec![0],
            left_out: None,
            marks: Marks::default(),
            fuel,
        }
    }

    /// The answer's rule.
    pub(crate) fn main(&self) -> Rule {
        self.rules[0]
    }
    pub(crate) fn rule(&self, id: RuleId) -> Rule {
        self.rules[id as usize]
    }
    pub(crate) fn num_states(&self) -> usize {
        self.states.len()
    }
    pub(crate) fn num_rules(&self) -> usize {
        self.rules.len()
    }
    pub(crate) fn edges(&self, state: State) -> &[Edge] {
        &self.states[state as usize]
    }
    pub(crate) fn copies(&self, rule: RuleId) -> u32 {
        self.copies[rule as usize]
    }

    /// The states of a rule, sorted.
    pub(crate) fn states_of(&mut self, rule: RuleId) -> Result<Vec<State>, GrammarError> {
        let Rule { start, end } = self.rule(rule);
        self.marks.clear(self.states.len());
        let mut found = vec![start, end];
        found.retain(|&state| self.marks.mark(state));
        let mut done = 0;
        while done < found.len() {
            let edges = &self.states[found[done] as usize];
            done += 1;
            self.fuel.burn(1 + edges.len())?;
            found.extend(edges.iter().map(|edge| edge.to).filter(|&to| self.marks.mark(to)));
        }
        found.sort_unstable();
        Ok(found)
    }

    pub(crate) fn state(&mut self) -> Result<State, GrammarError> {
        self.fuel.burn(STEPS_PER_PART)?;
        self.states.push(Vec::new());
        Ok(self.states.len() as State - 1)
    }
    /// A new rule without edges.
    pub(crate) fn new_rule(&mut self) -> Result<RuleId, GrammarError> {
        let (start, end) = (self.state()?, self.state()?);
        self.rules.push(Rule { start, end });
        self.copies.push(0);
        Ok(self.rules.len() as RuleId - 1)
    }

    pub(crate) fn edge(
        &mut self,
        from: State,
        label: Label,
        to: State,
    ) -> Result<(), GrammarError> {
        self.fuel.burn(STEPS_PER_PART)?;
        self.states[from as usize].push(Edge { label, to });
        Ok(())
    }
    pub(crate) fn skip(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        self.edge(from, Label::Empty, to)
    }
    pub(crate) fn call(
        &mut self,
        from: State,
        rule: RuleId,
        to: State,
    ) -> Result<(), GrammarError> {
        self.edge(from, Label::Call(rule), to)
    }

    /// Replaces the `index`-th edge of a state.
    pub(crate) fn replace_edge(&mut self, state: State, index: usize, edge: Edge) {
        self.states[state as usize][index] = edge;
    }
    /// Makes a rule start elsewhere.
    pub(crate) fn set_start(&mut self, rule: RuleId, start: State) {
        self.rules[rule as usize].start = start;
    }

    /// One byte sequence.
    pub(crate) fn literal(
        &mut self,
        bytes: &[u8],
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let Some((last, first)) = bytes.split_last() else { return self.skip(from, to) };
        let mut at = from;
        for &byte in first {
            let next = self.state()?;
            self.edge(at, Label::Bytes(byte, byte), next)?;
            at = next;
        }
        self.edge(at, Label::Bytes(*last, *last), to)
    }

    /// One character from `low` to `high`, as UTF-8.
    pub(crate) fn chars(
        &mut self,
        low: char,
        high: char,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        for sequence in byte_sequences(low, high) {
            let mut at = from;
            for (i, range) in sequence.iter().enumerate() {
                let next = if i + 1 == sequence.len() { to } else { self.state()? };
                self.edge(at, Label::Bytes(range.0, range.1), next)?;
                at = next;
            }
        }
        Ok(())
    }

    /// Replaces the `index`-th edge of a state, a call, by a copy of what it calls.
    pub(crate) fn inline_call(&mut self, state: State, index: usize) -> Result<(), GrammarError> {
        let edge = self.states[state as usize][index];
        let Label::Call(id) = edge.label else { return Ok(()) };
        let rule = self.rule(id);
        let copy = self.copy(rule)?;
        self.copies[id as usize] += 1;
        self.states[state as usize][index] = Edge { label: Label::Empty, to: copy.start };
        self.skip(copy.end, edge.to)
    }

    /// New states with the edges of a rule's.
    fn copy(&mut self, rule: Rule) -> Result<Rule, GrammarError> {
        let mut names = HashMap::new();
        let mut open = vec![rule.start, rule.end];
        for &old in &open {
            names.insert(old, self.state()?);
        }
        while let Some(old) = open.pop() {
            let from = names[&old];
            for edge in self.states[old as usize].clone() {
                let to = match names.get(&edge.to) {
                    Some(&to) => to,
                    None => {
                        let to = self.state()?;
                        names.insert(edge.to, to);
                        open.push(edge.to);
                        to
                    }
                };
                self.edge(from, edge.label, to)?;
            }
        }
        Ok(Rule { start: names[&rule.start], end: names[&rule.end] })
    }
}
