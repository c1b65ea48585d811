//! Which rules refer to each other, directly or through others.

use crate::GrammarError;
use crate::dfa::closure;
use crate::nfa::{Label, Nfa, RuleId, State};

/// The strongly connected components of a graph of rules.
pub(super) struct Components {
    of: Vec<u32>,
    is_cyclic: Vec<bool>,
}

impl Components {
    /// Tarjan's algorithm, with a stack of its own: a client decides how deep rules refer.
    pub(super) fn of_graph(edges: &[Vec<RuleId>]) -> Components {
        const NEW: u32 = u32::MAX;
        let mut of = vec![NEW; edges.len()];
        let mut is_cyclic = vec![false; edges.len()];
        let mut order = vec![NEW; edges.len()];
        let mut lowest = vec![0_u32; edges.len()];
        let mut open: Vec<u32> = Vec::new();
        let (mut count, mut name) = (0, 0);
        for root in 0..edges.len() as u32 {
            if order[root as usize] != NEW {
                continue;
            }
            let mut path = vec![(root, 0_usize)];
            while let Some(&mut (at, ref mut next)) = path.last_mut() {
                let i = at as usize;
                if *next == 0 {
                    (order[i], lowest[i]) = (count, count);
                    count += 1;
                    open.push(at);
                }
                if let Some(&to) = edges[i].get(*next) {
                    *next += 1;
                    is_cyclic[i] |= to == at;
                    if order[to as usize] == NEW {
                        path.push((to, 0));
                    } else if of[to as usize] == NEW {
                        lowest[i] = lowest[i].min(order[to as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(before, _)) = path.last() {
                    lowest[before as usize] = lowest[before as usize].min(lowest[i]);
                }
                if lowest[i] == order[i] {
                    let from = open.iter().rposition(|&rule| rule == at).unwrap_or(0);
                    let members = open.split_off(from);
                    for &member in &members {
                        of[member as usize] = name;
                        is_cyclic[member as usize] |= members.len() > 1;
                    }
                    name += 1;
                }
            }
        }
        Components { of, is_cyclic }
    }

    /// The number of a rule's component.
    pub(super) fn of_rule(&self, rule: RuleId) -> usize {
        self.of[rule as usize] as usize
    }
    /// Each of two rules refers to the other.
    pub(super) fn are_joined(&self, a: RuleId, b: RuleId) -> bool {
        self.of[a as usize] == self.of[b as usize] && self.is_cyclic[a as usize]
    }
    /// A rule refers to itself.
    pub(super) fn is_cyclic(&self, rule: RuleId) -> bool {
        self.is_cyclic[rule as usize]
    }
}

/// By the calls that the rules' texts may take.
pub(super) fn of_calls(nfa: &mut Nfa) -> Result<Components, GrammarError> {
    of_edges_from(nfa, |nfa, rule| nfa.states_of(rule))
}

/// By the calls that come first in the rules' texts.
pub(super) fn of_first_calls(nfa: &mut Nfa) -> Result<Components, GrammarError> {
    of_edges_from(nfa, |nfa, rule| {
        let start = nfa.rule(rule).start;
        closure(nfa, vec![start])
    })
}

fn of_edges_from(
    nfa: &mut Nfa,
    states: impl Fn(&mut Nfa, RuleId) -> Result<Vec<State>, GrammarError>,
) -> Result<Components, GrammarError> {
    let mut called = Vec::with_capacity(nfa.num_rules());
    for rule in 0..nfa.num_rules() as RuleId {
        let states = states(nfa, rule)?;
        let edges = states.iter().flat_map(|&state| nfa.edges(state));
        called.push(
            edges
                .filter_map(|edge| match edge.label {
                    Label::Call(callee) => Some(callee),
                    _ => None,
                })
                .collect(),
        );
    }
    Ok(Components::of_graph(&called))
}
