//! Texts by the languages that they are in: a subset construction over languages of characters,
//! whose states know which languages end there, and the deterministic automata that are chosen
//! from it, with lengths counted where that is needed.

use std::collections::{BTreeMap, VecDeque};

use ahash::AHashMap;

use crate::GrammarError;
use crate::chars::{Languages, Take, number_of};
use crate::fuel::Fuel;
use crate::nfa::State;

/// A state after some characters.
#[derive(Debug, Default)]
struct Class {
    /// Numbers of the languages that have the text, ascending.
    languages: Vec<usize>,
    /// Disjoint, ascending.
    edges: Vec<(u32, u32, u32)>,
}

/// All texts, told apart by the languages that have them.
#[derive(Debug)]
pub(crate) struct Classes {
    states: Vec<Class>,
}

/// A state of a chosen automaton.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ChosenState {
    /// Which end a text that stops here leads to.
    pub(crate) end: Option<usize>,
    /// Ranges of numbers of characters, and the next state: disjoint, ascending.
    pub(crate) edges: Vec<(u32, u32, u32)>,
}

impl ChosenState {
    /// The ranges that lead to each state.
    pub(crate) fn by_target(&self) -> BTreeMap<u32, Vec<(u32, u32)>> {
        let mut by_target: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for &(low, high, to) in &self.edges {
            by_target.entry(to).or_default().push((low, high));
        }
        by_target
    }
}

/// A deterministic automaton over characters whose texts lead to numbered ends. It starts in the
/// first state.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) states: Vec<ChosenState>,
}

impl Classes {
    /// Compares the languages.
    pub(crate) fn of(languages: &Languages, fuel: &mut Fuel) -> Result<Classes, GrammarError> {
        let mut subsets = Subsets { languages, fuel, ids: AHashMap::new(), sets: Vec::new() };
        // At the start anchors hold that hold nowhere else, so the first set is no other's equal.
        let start = subsets.closure(languages.starts.clone(), &[Take::AtStart])?;
        subsets.sets.push(start);
        let mut states = Vec::new();
        while states.len() < subsets.sets.len() {
            let edges = subsets.edges(states.len())?;
            let languages = subsets.ended(states.len())?;
            states.push(Class { languages, edges });
        }
        Ok(Classes { states })
    }

    /// The languages that have `text`.
    pub(crate) fn languages_of(&self, text: &str) -> &[usize] {
        let mut state = &self.states[0];
        for c in text.chars() {
            let number = number_of(c);
            let Some(edge) = state.edges.iter().find(|e| e.0 <= number && number <= e.1) else {
                return &[];
            };
            state = &self.states[edge.2 as usize];
        }
        &state.languages
    }

    /// The texts for which `end_of` their languages names an end, of `min` to `max` characters.
    pub(crate) fn choose(
        &self,
        mut end_of: impl FnMut(&[usize]) -> Option<usize>,
        (min, max): (usize, Option<usize>),
        fuel: &mut Fuel,
    ) -> Result<Chosen, GrammarError> {
        let states = self
            .states
            .iter()
            .map(|class| ChosenState { end: end_of(&class.languages), edges: class.edges.clone() });
        let chosen = Chosen { states: states.collect() }.trimmed(fuel)?.minimized(fuel)?;
        if min == 0 && max.is_none() { Ok(chosen) } else { chosen.counted(min, max, fuel) }
    }
}

struct Subsets<'a> {
    languages: &'a Languages,
    fuel: &'a mut Fuel,
    ids: AHashMap<Vec<State>, u32>,
    sets: Vec<Vec<State>>,
}

impl Subsets<'_> {
    /// What these states reach without a character, sorted; anchors of `holding` hold.
    fn closure(
        &mut self,
        states: Vec<State>,
        holding: &[Take],
    ) -> Result<Vec<State>, GrammarError> {
        let mut seen: ahash::AHashSet<State> = states.iter().copied().collect();
        let mut open = states;
        let mut steps = 0;
        while let Some(state) = open.pop() {
            let edges = &self.languages.states[state as usize];
            steps += 1 + edges.len();
            for &(take, to) in edges {
                if (take == Take::Nothing || holding.contains(&take)) && seen.insert(to) {
                    open.push(to);
                }
            }
        }
        self.fuel.burn(2 * steps)?;
        let mut set: Vec<State> = seen.into_iter().collect();
        set.sort_unstable();
        Ok(set)
    }

    fn id_of(&mut self, states: Vec<State>) -> Result<u32, GrammarError> {
        let set = self.closure(states, &[])?;
        if let Some(&id) = self.ids.get(&set) {
            return Ok(id);
        }
        let id = self.sets.len() as u32;
        self.fuel.burn(16 + 2 * set.len())?;
        self.ids.insert(set.clone(), id);
        self.sets.push(set);
        Ok(id)
    }

    /// The languages that have the text which leads to this set.
    fn ended(&mut self, set: usize) -> Result<Vec<usize>, GrammarError> {
        let holding: &[Take] =
            if set == 0 { &[Take::AtStart, Take::AtEnd] } else { &[Take::AtEnd] };
        let last = self.closure(self.sets[set].clone(), holding)?;
        let ends = self.languages.ends.iter().enumerate();
        let ended = ends.filter(|(_, end)| last.binary_search(end).is_ok());
        let ended: Vec<usize> = ended.map(|(language, _)| language).collect();
        self.fuel.burn(self.languages.ends.len())?;
        Ok(ended)
    }

    /// Disjoint ranges with the sets that they lead to; neighbours that lead to one are joined.
    fn edges(&mut self, set: usize) -> Result<Vec<(u32, u32, u32)>, GrammarError> {
        // Where targets begin and cease to be reached.
        let mut changes: BTreeMap<u32, (Vec<State>, Vec<State>)> = BTreeMap::new();
        for &state in &self.sets[set] {
            for &(take, to) in &self.languages.states[state as usize] {
                if let Take::Range(low, high) = take {
                    changes.entry(low).or_default().0.push(to);
                    changes.entry(high + 1).or_default().1.push(to);
                }
            }
        }
        let mut reached: BTreeMap<State, usize> = BTreeMap::new();
        let mut known: AHashMap<Vec<State>, u32> = AHashMap::new();
        let mut edges: Vec<(u32, u32, u32)> = Vec::new();
        let mut begin = 0;
        for (at, (coming, going)) in changes {
            self.fuel.burn(4 + 2 * reached.len())?;
            if !reached.is_empty() {
                let targets: Vec<State> = reached.keys().copied().collect();
                let target = match known.get(&targets) {
                    Some(&target) => target,
                    None => {
                        let target = self.id_of(targets.clone())?;
                        known.insert(targets, target);
                        target
                    }
                };
                push_joined(&mut edges, (begin, at - 1, target));
            }
            coming.into_iter().for_each(|to| *reached.entry(to).or_default() += 1);
            for to in going {
                if let Some(count) = reached.get_mut(&to) {
                    *count -= 1;
                    if *count == 0 {
                        reached.remove(&to);
                    }
                }
            }
            begin = at;
        }
        Ok(edges)
    }
}

fn push_joined(edges: &mut Vec<(u32, u32, u32)>, edge: (u32, u32, u32)) {
    match edges.last_mut() {
        Some(last) if last.2 == edge.2 && last.1 + 1 == edge.0 => last.1 = edge.1,
        _ => edges.push(edge),
    }
}

/// The way to an end that is never reached, or that has no bound.
const NEVER: usize = usize::MAX;

impl Chosen {
    /// Without the states from which no end is reached.
    fn trimmed(self, fuel: &mut Fuel) -> Result<Chosen, GrammarError> {
        let shortest = self.shortest(fuel)?;
        let mut names = vec![None; self.states.len()];
        let (mut order, mut kept) = (vec![0_u32], Vec::new());
        names[0] = Some(0);
        while kept.len() < order.len() {
            let state = &self.states[order[kept.len()] as usize];
            let mut edges = Vec::new();
            for &(low, high, to) in state.edges.iter().filter(|e| shortest[e.2 as usize] < NEVER) {
                let name = *names[to as usize].get_or_insert_with(|| {
                    order.push(to);
                    order.len() as u32 - 1
                });
                push_joined(&mut edges, (low, high, name));
            }
            kept.push(ChosenState { end: state.end, edges });
        }
        Ok(Chosen { states: kept })
    }

    /// With states merged that no text can tell apart.
    fn minimized(self, fuel: &mut Fuel) -> Result<Chosen, GrammarError> {
        let mut class: Vec<u32> = vec![0; self.states.len()];
        let mut count = 0;
        loop {
            let mut names: AHashMap<(u32, ChosenState), u32> = AHashMap::new();
            let mut next = Vec::with_capacity(class.len());
            for (state, &old) in self.states.iter().zip(&class) {
                fuel.burn(2 + 2 * state.edges.len())?;
                let fresh = names.len() as u32;
                next.push(*names.entry((old, renamed(state, &class))).or_insert(fresh));
            }
            class = next;
            if names.len() == count {
                break;
            }
            count = names.len();
        }
        let mut kept: Vec<ChosenState> = Vec::with_capacity(count);
        for (state, &name) in self.states.iter().zip(&class) {
            if name as usize == kept.len() {
                kept.push(renamed(state, &class));
            }
        }
        Ok(Chosen { states: kept })
    }

    /// Only texts of `min` to `max` characters. Characters are counted only while the length is
    /// not settled by the state itself.
    fn counted(
        self,
        min: usize,
        max: Option<usize>,
        fuel: &mut Fuel,
    ) -> Result<Chosen, GrammarError> {
        let (shortest, longest) = (self.shortest(fuel)?, self.longest(fuel)?);
        let max = max.unwrap_or(NEVER);
        // A state with the characters before it; none where they no longer matter.
        let place = |state: u32, count: Option<usize>| {
            let (least, most) = (shortest[state as usize], longest[state as usize]);
            let Some(count) = count else { return Some((state, None)) };
            // Beyond the minimum and without a maximum, all counts are one.
            let count = if max == NEVER { count.min(min) } else { count };
            let settled = count.saturating_add(least) >= min
                && (max == NEVER || count.saturating_add(most) <= max && most != NEVER);
            let possible = count.saturating_add(least) <= max && least != NEVER;
            possible.then_some((state, (!settled).then_some(count)))
        };
        let mut names: AHashMap<(u32, Option<usize>), u32> = AHashMap::new();
        let mut order: Vec<(u32, Option<usize>)> = place(0, Some(0)).into_iter().collect();
        names.extend(order.first().map(|&first| (first, 0)));
        let mut states = Vec::new();
        while states.len() < order.len() {
            let (old, count) = order[states.len()];
            let state = &self.states[old as usize];
            fuel.burn(16 + 8 * state.edges.len())?;
            let mut edges = Vec::new();
            for &(low, high, to) in &state.edges {
                let Some(next) = place(to, count.map(|count| count + 1)) else { continue };
                let name = *names.entry(next).or_insert_with(|| {
                    order.push(next);
                    order.len() as u32 - 1
                });
                push_joined(&mut edges, (low, high, name));
            }
            let fits = count.is_none_or(|count| count >= min && count <= max);
            states.push(ChosenState { end: state.end.filter(|_| fits), edges });
        }
        if states.is_empty() {
            states.push(ChosenState::default());
        }
        Chosen { states }.trimmed(fuel)
    }

    /// Characters that the shortest way to an end takes, for each state.
    fn shortest(&self, fuel: &mut Fuel) -> Result<Vec<usize>, GrammarError> {
        let before = self.before(fuel)?;
        let mut shortest = vec![NEVER; self.states.len()];
        let mut open = VecDeque::new();
        for (i, _) in self.states.iter().enumerate().filter(|(_, state)| state.end.is_some()) {
            shortest[i] = 0;
            open.push_back(i);
        }
        while let Some(i) = open.pop_front() {
            for &state in &before[i] {
                if shortest[state] == NEVER {
                    shortest[state] = shortest[i] + 1;
                    open.push_back(state);
                }
            }
        }
        Ok(shortest)
    }

    /// Characters that the longest way to an end takes, for each state of an automaton without
    /// states that lead to none: [`NEVER`] where a loop is reached.
    fn longest(&self, fuel: &mut Fuel) -> Result<Vec<usize>, GrammarError> {
        let before = self.before(fuel)?;
        // Edges to states that are not known yet: from the states without any backwards.
        let mut unknown: Vec<usize> = self.states.iter().map(|s| s.edges.len()).collect();
        let mut longest = vec![0; self.states.len()];
        let mut open: Vec<usize> = (0..unknown.len()).filter(|&i| unknown[i] == 0).collect();
        while let Some(i) = open.pop() {
            for &state in &before[i] {
                longest[state] = longest[state].max(longest[i] + 1);
                unknown[state] -= 1;
                if unknown[state] == 0 {
                    open.push(state);
                }
            }
        }
        for (longest, &unknown) in longest.iter_mut().zip(&unknown) {
            if unknown > 0 {
                *longest = NEVER;
            }
        }
        Ok(longest)
    }

    /// For each state, the one that each of the edges to it leaves.
    fn before(&self, fuel: &mut Fuel) -> Result<Vec<Vec<usize>>, GrammarError> {
        let mut before = vec![Vec::new(); self.states.len()];
        for (i, state) in self.states.iter().enumerate() {
            fuel.burn(4 + 2 * state.edges.len())?;
            state.edges.iter().for_each(|edge| before[edge.2 as usize].push(i));
        }
        Ok(before)
    }
}

/// A state with edges between classes.
fn renamed(state: &ChosenState, class: &[u32]) -> ChosenState {
    let mut edges = Vec::with_capacity(state.edges.len());
    for &(low, high, to) in &state.edges {
        push_joined(&mut edges, (low, high, class[to as usize]));
    }
    ChosenState { end: state.end, edges }
}
