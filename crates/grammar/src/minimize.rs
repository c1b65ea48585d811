//! Merges states that no text can tell apart. Partition refinement by signatures: what a state's
//! edges lead to, with states named by their blocks. Of a block that is split the largest part
//! keeps its name, so that a state is renamed, and its predecessors looked at again, only a
//! logarithmic number of times (Hopcroft's rule; for signatures: Jacobs and Wissmann, "Fast
//! Coalgebraic Bisimilarity Minimization", 2023).

use ahash::AHashMap;

use crate::GrammarError;
use crate::assemble::{FlatEdge, FlatState};
use crate::fuel::Fuel;

/// The same automaton with fewer states; the first stays the first.
pub(crate) fn minimize(
    states: Vec<FlatState>,
    fuel: &mut Fuel,
) -> Result<Vec<FlatState>, GrammarError> {
    let mut partition = Partition::of(&states, fuel)?;
    while let Some(block) = partition.open.pop() {
        partition.refine(block, &states, fuel)?;
    }
    // Blocks are numbered in the order of their first states.
    let mut names = vec![u32::MAX; partition.blocks.len()];
    let mut first: Vec<usize> = Vec::new();
    for (state, &block) in partition.block_of.iter().enumerate() {
        if names[block as usize] == u32::MAX {
            names[block as usize] = first.len() as u32;
            first.push(state);
        }
    }
    let name = |state: u32| names[partition.block_of[state as usize] as usize];
    let kept = first.into_iter().map(|state| {
        // Defaults are found afterwards.
        let FlatState { is_final, need, plain, ref edges, default: _ } = states[state];
        FlatState { is_final, need, plain, edges: renamed(edges, name), default: None }
    });
    Ok(kept.collect())
}

/// States that may be merged.
#[derive(Default)]
struct Block {
    states: Vec<u32>,
    /// Those whose signature may differ from the others': the first of `states`.
    num_dirty: usize,
}

struct Partition {
    blocks: Vec<Block>,
    block_of: Vec<u32>,
    /// Where a state is in its block.
    place_of: Vec<u32>,
    /// Blocks with dirty states.
    open: Vec<u32>,
    /// The states whose edges lead to each state.
    before: Vec<Vec<u32>>,
}

impl Partition {
    /// States apart that differ in themselves; all of them are dirty.
    fn of(states: &[FlatState], fuel: &mut Fuel) -> Result<Partition, GrammarError> {
        let mut names: AHashMap<(bool, u32, u8), u32> = AHashMap::new();
        let mut blocks: Vec<Block> = Vec::new();
        let (mut block_of, mut place_of) = (Vec::new(), Vec::new());
        let mut before = vec![Vec::new(); states.len()];
        for (i, state) in (0_u32..).zip(states) {
            fuel.burn(2 + 2 * state.edges.len())?;
            let fresh = blocks.len() as u32;
            let name = *names.entry((state.is_final, state.need, state.plain)).or_insert(fresh);
            if name == fresh {
                blocks.push(Block::default());
            }
            let block = &mut blocks[name as usize];
            block_of.push(name);
            place_of.push(block.states.len() as u32);
            block.states.push(i);
            block.num_dirty += 1;
            for edge in &state.edges {
                for next in std::iter::once(edge.target).chain(edge.push) {
                    if before[next as usize].last() != Some(&i) {
                        before[next as usize].push(i);
                    }
                }
            }
        }
        let open = (0..blocks.len() as u32).collect();
        Ok(Partition { blocks, block_of, place_of, open, before })
    }

    /// Splits a block by the signatures of its dirty states and of one clean state, which speaks
    /// for the other clean ones.
    fn refine(
        &mut self,
        block: u32,
        states: &[FlatState],
        fuel: &mut Fuel,
    ) -> Result<(), GrammarError> {
        let Block { states: ref members, num_dirty } = self.blocks[block as usize];
        let mut parts: Vec<Vec<u32>> = Vec::new();
        let mut names: AHashMap<Vec<FlatEdge>, usize> = AHashMap::new();
        for &state in &members[..members.len().min(num_dirty + 1)] {
            let edges = &states[state as usize].edges;
            fuel.burn(4 + 2 * edges.len())?;
            let signature = renamed(edges, |state| self.block_of[state as usize]);
            let part = *names.entry(signature).or_insert(parts.len());
            if part == parts.len() {
                parts.push(Vec::new());
            }
            parts[part].push(state);
        }
        // The last one of them was clean: the other clean ones go where it goes.
        let clean = members.get(num_dirty + 1..).unwrap_or_default();
        let last = members.get(num_dirty).copied();
        let has_clean = |part: &[u32]| last.is_some() && part.last().copied() == last;
        let size = |part: &[u32]| part.len() + if has_clean(part) { clean.len() } else { 0 };
        let largest = (0..parts.len()).max_by_key(|&i| size(&parts[i])).unwrap_or_default();
        let with_clean = parts.iter().position(|part| has_clean(part));
        if let Some(part) = with_clean.filter(|&part| part != largest) {
            parts[part].extend(clean);
        }
        parts.swap_remove(largest);
        self.blocks[block as usize].num_dirty = 0;
        for part in &parts {
            self.move_out(block, part);
        }
        for &state in parts.iter().flatten() {
            self.mark_before(state, fuel)?;
        }
        Ok(())
    }

    /// Moves states from their block to a new one.
    fn move_out(&mut self, block: u32, states: &[u32]) {
        let name = self.blocks.len() as u32;
        for (place, &state) in (0_u32..).zip(states) {
            let old = &mut self.blocks[block as usize].states;
            let hole = self.place_of[state as usize];
            old.swap_remove(hole as usize);
            if let Some(&moved) = old.get(hole as usize) {
                self.place_of[moved as usize] = hole;
            }
            self.block_of[state as usize] = name;
            self.place_of[state as usize] = place;
        }
        self.blocks.push(Block { states: states.to_vec(), num_dirty: 0 });
    }

    /// The states whose edges lead to a renamed one are dirty.
    fn mark_before(&mut self, state: u32, fuel: &mut Fuel) -> Result<(), GrammarError> {
        let before = std::mem::take(&mut self.before[state as usize]);
        fuel.burn(2 + before.len())?;
        for &dirty in &before {
            let name = self.block_of[dirty as usize];
            let block = &mut self.blocks[name as usize];
            let (place, boundary) = (self.place_of[dirty as usize], block.num_dirty as u32);
            if place < boundary {
                continue;
            }
            let other = block.states[boundary as usize];
            block.states.swap(place as usize, boundary as usize);
            self.place_of[other as usize] = place;
            self.place_of[dirty as usize] = boundary;
            block.num_dirty += 1;
            if boundary == 0 {
                self.open.push(name);
            }
        }
        self.before[state as usize] = before;
        Ok(())
    }
}

/// Edges between blocks; neighbours that lead to the same are joined.
fn renamed(edges: &[FlatEdge], name: impl Fn(u32) -> u32) -> Vec<FlatEdge> {
    let mut joined: Vec<FlatEdge> = Vec::with_capacity(edges.len());
    for edge in edges {
        let new = FlatEdge { target: name(edge.target), push: edge.push.map(&name), ..*edge };
        match joined.last_mut() {
            Some(last)
                if u16::from(last.high) + 1 == u16::from(new.low)
                    && (last.target, last.push) == (new.target, new.push) =>
            {
                last.high = new.high;
            }
            _ => joined.push(new),
        }
    }
    joined
}
