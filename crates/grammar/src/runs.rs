//! Runs of a deterministic automaton over characters: states one behind the other that take the
//! same characters, such as a bound on a length leaves. Written as counts, they take few states.

use crate::GrammarError;
use crate::classes::Chosen;
use crate::fuel::Fuel;

/// Runs that are shorter stay as they are.
const MIN_RUN: usize = 64;

/// Equal steps from a state on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// What each step takes.
    pub(crate) ranges: Vec<(u32, u32)>,
    pub(crate) length: usize,
    /// The state behind the last step.
    pub(crate) next: u32,
    /// The end to which every state of the run leads, `next` included; that has no edges then.
    pub(crate) end: Option<usize>,
}

/// What a state is to the runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In no run.
    Alone,
    Head(Run),
    /// Reached only from the run's state before it.
    Inside,
}

impl Chosen {
    /// Finds the runs.
    pub(crate) fn runs(&self, fuel: &mut Fuel) -> Result<Vec<Place>, GrammarError> {
        let mut num_before = vec![0_u32; self.states.len()];
        for state in &self.states {
            fuel.burn(4 + 4 * state.edges.len())?;
            state.by_target().keys().for_each(|&to| num_before[to as usize] += 1);
        }
        // The state that goes on with the run of each.
        let links: Vec<Option<u32>> = (0..self.states.len())
            .map(|at| {
                let (ranges, to) = self.step(at)?;
                let next = self.step(to as usize)?;
                let (end, next_end) = (self.states[at].end, self.states[to as usize].end);
                let only = to != 0 && num_before[to as usize] == 1;
                (only && end == next_end && ranges == next.0).then_some(to)
            })
            .collect();
        let mut is_linked = vec![false; self.states.len()];
        links.iter().flatten().for_each(|&to| is_linked[to as usize] = true);
        let mut places: Vec<Place> = links.iter().map(|_| Place::Alone).collect();
        for head in (0..links.len()).filter(|&head| !is_linked[head]) {
            let steps: Vec<usize> =
                std::iter::successors(Some(head), |&at| links[at].map(|to| to as usize)).collect();
            if let Some(run) = self.run(&steps) {
                steps.into_iter().for_each(|state| places[state] = Place::Inside);
                places[head] = Place::Head(run);
            }
        }
        Ok(places)
    }

    /// The run of these states, if it is one and long enough.
    fn run(&self, steps: &[usize]) -> Option<Run> {
        let (&head, &last) = (steps.first()?, steps.last()?);
        let (ranges, next) = self.step(last)?;
        let end = self.states[head].end;
        let behind = &self.states[next as usize];
        let ends = end.is_none() || behind.end == end && behind.edges.is_empty();
        (ends && steps.len() >= MIN_RUN).then_some(Run { ranges, length: steps.len(), next, end })
    }

    /// The ranges that a state takes and where they lead, if that is one other state.
    fn step(&self, state: usize) -> Option<(Vec<(u32, u32)>, u32)> {
        let edges = &self.states[state].edges;
        let to = edges.first()?.2;
        let is_step = to as usize != state && edges.iter().all(|edge| edge.2 == to);
        is_step.then(|| (edges.iter().map(|edge| (edge.0, edge.1)).collect(), to))
    }
}
