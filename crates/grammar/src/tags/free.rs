//! Free text, up to what ends it. The first marker to be complete ends it, wherever it began: the
//! places are those of a tree of all markers in which what a text ends with is known (Aho and
//! Corasick's). It is a tree of characters, so that all text is UTF-8.

use std::collections::BTreeMap;

use crate::GrammarError;
use crate::nfa::{Nfa, State};

/// A text that ends free text, and where it leads; without that the text never comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marker<'a> {
    pub(super) text: &'a str,
    pub(super) to: Option<State>,
}

/// Adds free text from `free` on. Where it is given, the text may be over at `end`. No marker is
/// part of another one.
pub(super) fn add(
    nfa: &mut Nfa,
    free: State,
    markers: &[Marker<'_>],
    end: Option<State>,
) -> Result<(), GrammarError> {
    let nodes = tree(nfa, markers)?;
    let mut places = vec![Some(free)];
    for node in &nodes[1..] {
        places.push(match node.marker {
            Some(marker) => markers[marker].to,
            None => Some(nfa.state()?),
        });
    }
    // Characters that begin no marker, where none beyond ASCII does.
    let rest = nfa.state()?;
    nfa.chars('\u{80}', char::MAX, rest, free)?;
    for (node, place) in nodes.iter().zip(&places) {
        let (None, Some(from)) = (node.marker, *place) else { continue };
        if let Some(end) = end {
            nfa.skip(from, end)?;
        }
        for (c, to) in &node.next {
            if let Some(to) = places[*to] {
                nfa.chars(*c, *c, from, to)?;
            }
        }
        let taken: Vec<char> = node.next.keys().copied().collect();
        let (ascii, beyond) = taken.split_at(taken.partition_point(char::is_ascii));
        others(nfa, ascii, ('\0', '\u{7f}'), from, free)?;
        match beyond {
            [] => nfa.skip(from, rest)?,
            beyond => others(nfa, beyond, ('\u{80}', char::MAX), from, free)?,
        }
    }
    Ok(())
}

/// One character of a range that is none of `taken`, which are sorted.
fn others(
    nfa: &mut Nfa,
    taken: &[char],
    (low, high): (char, char),
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    let mut first = Some(low);
    for &c in taken {
        if let (Some(first), Some(last)) = (first, (low..c).next_back())
            && first <= last
        {
            nfa.chars(first, last, from, to)?;
        }
        first = (c..=high).nth(1);
    }
    first.map_or(Ok(()), |first| nfa.chars(first, high, from, to))
}

/// A place in the tree: a beginning of markers has come.
#[derive(Default)]
struct Node {
    /// Characters that lead on, not to the root.
    next: BTreeMap<char, usize>,
    /// All of this marker has come.
    marker: Option<usize>,
}

/// The nodes; the first one is the root.
fn tree(nfa: &mut Nfa, markers: &[Marker<'_>]) -> Result<Vec<Node>, GrammarError> {
    let mut nodes = vec![Node::default()];
    for (i, marker) in markers.iter().enumerate() {
        let mut at = 0;
        for c in marker.text.chars() {
            nfa.fuel.burn(8)?;
            let new = nodes.len();
            at = *nodes[at].next.entry(c).or_insert(new);
            if at == new {
                nodes.push(Node::default());
            }
        }
        nodes[at].marker = Some(i);
    }
    // Behind a character that leads on nowhere, it is as behind the longest end of the text so far
    // that begins a marker. That is nearer to the root, so it is complete already.
    let mut open: Vec<(usize, usize)> = nodes[0].next.values().map(|&child| (child, 0)).collect();
    let mut done = 0;
    while let Some(&(at, shorter)) = open.get(done) {
        done += 1;
        let children = nodes[at].next.clone();
        nfa.fuel.burn(4 * (1 + nodes[shorter].next.len() + children.len()))?;
        for (c, child) in &children {
            open.push((*child, nodes[shorter].next.get(c).copied().unwrap_or(0)));
        }
        let mut next = nodes[shorter].next.clone();
        next.extend(children);
        nodes[at].next = next;
    }
    Ok(nodes)
}
