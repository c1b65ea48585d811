//! Tokens of which a grammar leaves no choice. Where only one text may follow, a draw could only
//! decide how to cut it into tokens. So the tokens that a tokenizer would write are named with the
//! automaton, and the device appends them without a draw.
//!
//! A token is named only if no longer one could stand in its place: one that holds the end of the
//! forced text and the beginning of what follows is the model's to choose.

use crate::assemble::{FlatEdge, FlatState};
use crate::error::GrammarError;
use crate::fuel::Fuel;
use crate::vocabulary::Vocabulary;
use crate::words::MAX_STACK;

/// Bytes of forced text that are looked at together.
const MAX_TEXT: usize = 128;
/// Steps of the compiler that a text takes to encode, and each byte of it.
const TEXT_STEPS: usize = 60;
const BYTE_STEPS: usize = 4;
/// And a look at a token.
const LOOK_STEPS: usize = 2;

/// How the answer's tokenizer writes text.
pub struct Writer<'a> {
    /// The tokens.
    pub tokens: &'a TokenOrder,
    /// The ids of a text that follows other text.
    pub encode: &'a dyn Fn(&str) -> Vec<u32>,
}

/// The bytes of all tokens, and the tokens in the order of their bytes.
pub struct TokenOrder {
    vocabulary: Vocabulary,
    by_bytes: Vec<u32>,
}

impl TokenOrder {
    /// Sorts a vocabulary.
    #[must_use]
    pub fn of(vocabulary: Vocabulary) -> TokenOrder {
        let ids = 0..vocabulary.len() as u32;
        let mut by_bytes: Vec<u32> = ids.filter(|&id| !vocabulary.token(id).is_empty()).collect();
        by_bytes.sort_unstable_by_key(|&id| (vocabulary.token(id), id));
        TokenOrder { vocabulary, by_bytes }
    }

    /// The tokens.
    #[must_use]
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Whether a token has all of `text`, and goes on with a byte of `next`.
    fn has_longer(&self, text: &[u8], next: &Next, fuel: &mut Fuel) -> Result<bool, GrammarError> {
        let bytes = |id: &u32| self.vocabulary.token(*id);
        let first = self.by_bytes.partition_point(|id| bytes(id) <= text);
        fuel.burn(LOOK_STEPS * 16)?;
        for token in self.by_bytes[first..].iter().map(bytes) {
            fuel.burn(LOOK_STEPS)?;
            match token.strip_prefix(text) {
                None => return Ok(false),
                Some([byte, ..]) if next[usize::from(*byte)] => return Ok(true),
                Some(_) => {}
            }
        }
        Ok(false)
    }
}

/// The bytes that may follow a text.
type Next = [bool; 256];
const ANY: Next = [true; 256];

/// The state and the depth of the stack before a byte, as far as the text itself has pushed.
#[derive(Clone, Copy)]
struct Place {
    state: u32,
    depth: usize,
}

/// The end of a rule in a text.
#[derive(Clone, Copy)]
struct Return {
    /// Bytes before it.
    at: usize,
    /// Of the stack behind it.
    depth: usize,
    back: u32,
}

/// The one text that may follow a state.
struct Forced {
    text: Vec<u8>,
    /// Before each byte.
    places: Vec<Place>,
    /// Where it returns to what it has pushed itself.
    returns: Vec<Return>,
    next: Next,
}

/// The edge of a state that has only one, over one byte.
fn only_edge(state: &FlatState) -> Option<(u8, u32, Option<u32>)> {
    match *state.edges.as_slice() {
        [edge] if edge.low == edge.high && !state.is_final && state.default.is_none() => {
            Some((edge.low, edge.target, edge.push))
        }
        _ => None,
    }
}

/// What the rule of a state returns to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The state is not reached.
    None,
    /// The rule is the answer's.
    Answer,
    One(u32),
    Several,
}

struct Graph<'a> {
    states: &'a [FlatState],
    callers: Vec<Caller>,
}

impl<'a> Graph<'a> {
    fn of(states: &'a [FlatState], fuel: &mut Fuel) -> Result<Graph<'a>, GrammarError> {
        let mut graph = Graph { states, callers: vec![Caller::None; states.len()] };
        let mut open = vec![0];
        graph.callers[0] = Caller::Answer;
        while let Some(state) = open.pop() {
            let caller = graph.callers[state as usize];
            for edge in graph.edges(state) {
                fuel.burn(1)?;
                let back = edge.push.map(|back| (back, caller));
                let inside = (edge.target, edge.push.map_or(caller, Caller::One));
                for (reached, caller) in back.into_iter().chain([inside]) {
                    let known = &mut graph.callers[reached as usize];
                    let joined = match *known {
                        Caller::None => caller,
                        same if same == caller => continue,
                        _ => Caller::Several,
                    };
                    if joined != *known {
                        *known = joined;
                        open.push(reached);
                    }
                }
            }
        }
        Ok(graph)
    }

    /// Those of its default too.
    fn edges(&self, state: u32) -> impl Iterator<Item = &'a FlatEdge> + use<'a> {
        let states = self.states;
        let state = &states[state as usize];
        let others = state.default.map(|other| &states[other as usize].edges);
        state.edges.iter().chain(others.into_iter().flatten())
    }

    fn is_over(&self, state: u32) -> bool {
        let state = &self.states[state as usize];
        state.is_final && state.edges.is_empty()
    }

    /// The text that is forced behind a state, whatever the stack holds there.
    fn forced_from(&self, state: u32) -> Forced {
        let (mut text, mut places, mut returns) = (Vec::new(), Vec::new(), Vec::new());
        let mut stack = Vec::new();
        let (mut at, mut caller) = (state, self.callers[state as usize]);
        while let Some((byte, target, push)) = only_edge(&self.states[at as usize]) {
            if text.len() == MAX_TEXT {
                return Forced { text, places, returns, next: ANY };
            }
            text.push(byte);
            places.push(Place { state: at, depth: stack.len() });
            stack.extend(push);
            at = target;
            while self.is_over(at) {
                match (stack.pop(), caller) {
                    (Some(back), _) => {
                        returns.push(Return { at: text.len(), depth: stack.len(), back });
                        at = back;
                    }
                    (None, Caller::One(back)) => {
                        (at, caller) = (back, self.callers[back as usize]);
                    }
                    _ => break,
                }
            }
        }
        Forced { text, places, returns, next: self.next_bytes(at, stack, caller) }
    }

    /// What may follow a state above a stack in a rule of this caller.
    fn next_bytes(&self, mut state: u32, mut stack: Vec<u32>, mut caller: Caller) -> Next {
        let mut bytes = [false; 256];
        // Each turn leaves a rule.
        for _ in 0..MAX_STACK {
            for edge in self.edges(state) {
                bytes[usize::from(edge.low)..=usize::from(edge.high)].fill(true);
            }
            if !self.states[state as usize].is_final {
                return bytes;
            }
            match (stack.pop(), caller) {
                (Some(back), _) => state = back,
                (None, Caller::One(back)) => (state, caller) = (back, self.callers[back as usize]),
                (None, Caller::Answer) => return bytes,
                (None, Caller::None | Caller::Several) => break,
            }
        }
        ANY
    }

    /// Whether a token of a text follows its state whatever is on the stack there: it returns to
    /// what the text has pushed before only where no other rule calls.
    fn holds_anywhere(&self, forced: &Forced, begin: usize, end: usize) -> bool {
        let Place { state, depth } = forced.places[begin];
        let mut caller = self.callers[state as usize];
        let inside = |r: &&Return| begin < r.at && r.at < end && r.depth < depth;
        forced.returns.iter().filter(inside).all(|r| {
            let sure = caller == Caller::One(r.back);
            caller = self.callers[r.back as usize];
            sure
        })
    }
}

/// States that may be come to by other bytes than forced ones.
fn heads(states: &[FlatState]) -> Vec<bool> {
    let mut heads = vec![false; states.len()];
    heads[0] = true;
    for state in states {
        let chosen = only_edge(state).is_none();
        for edge in &state.edges {
            heads[edge.target as usize] |= chosen || edge.push.is_some();
            if let Some(back) = edge.push {
                heads[back as usize] = true;
            }
        }
    }
    heads
}

/// The tokens that states are followed by, ascending by state. As many as the steps last for.
pub(crate) fn find_forced(
    states: &[FlatState],
    writer: &Writer<'_>,
    fuel: &mut Fuel,
) -> Vec<(u32, u32)> {
    let mut found = vec![None; states.len()];
    let Ok(graph) = Graph::of(states, fuel) else { return Vec::new() };
    for (state, is_head) in heads(states).into_iter().enumerate() {
        if !is_head || found[state].is_some() || only_edge(&states[state]).is_none() {
            continue;
        }
        let forced = graph.forced_from(state as u32);
        if name_tokens(&graph, &forced, writer, &mut found, fuel).is_err() {
            break;
        }
    }
    let named = found.into_iter().enumerate();
    named.filter_map(|(state, token)| Some((state as u32, token?))).collect()
}

/// Names the tokens of a forced text, each by the state before it.
fn name_tokens(
    graph: &Graph<'_>,
    forced: &Forced,
    writer: &Writer<'_>,
    found: &mut [Option<u32>],
    fuel: &mut Fuel,
) -> Result<(), GrammarError> {
    fuel.burn(TEXT_STEPS + BYTE_STEPS * forced.text.len())?;
    let whole = forced.text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let next = if whole.len() == forced.text.len() { &forced.next } else { &ANY };
    let tokens = (writer.encode)(whole);
    let vocabulary = writer.tokens.vocabulary();
    let written = tokens.iter().flat_map(|&id| vocabulary.token(id)).eq(whole.as_bytes());
    if !written {
        return Ok(());
    }
    let mut begin = 0;
    for id in tokens {
        let end = begin + vocabulary.token(id).len();
        if writer.tokens.has_longer(&whole.as_bytes()[begin..], next, fuel)? {
            return Ok(());
        }
        if graph.holds_anywhere(forced, begin, end) {
            found[forced.places[begin].state as usize].get_or_insert(id);
        }
        begin = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(byte: u8, target: u32, push: Option<u32>) -> FlatEdge {
        FlatEdge { low: byte, high: byte, target, push }
    }
    fn state(edges: &[FlatEdge]) -> FlatState {
        FlatState { is_final: edges.is_empty(), edges: edges.to_vec(), ..FlatState::default() }
    }

    #[test]
    fn a_token_that_leaves_a_rule_is_not_named_inside_it() {
        // "a[e]x" and "b[e]q", where "[e]" is one rule: "e]x" may follow "a[", but not "b[".
        let states = [
            state(&[to(b'a', 1, None), to(b'b', 6, None)]),
            state(&[to(b'[', 2, Some(5))]),
            state(&[to(b'e', 3, None)]),
            state(&[to(b']', 4, None)]),
            state(&[]),
            state(&[to(b'x', 4, None)]),
            state(&[to(b'[', 2, Some(7))]),
            state(&[to(b'q', 4, None)]),
        ];
        let mut vocabulary = Vocabulary::default();
        for token in ["[", "e]x", "e", "]", "q", "x"] {
            vocabulary.push(token.as_bytes());
        }
        let tokens = TokenOrder::of(vocabulary);
        let encode = |text: &str| match text {
            "[e]x" => vec![0, 1],
            "[e]q" => vec![0, 2, 3, 4],
            "e]" => vec![2, 3],
            "x" => vec![5],
            _ => vec![4],
        };
        let writer = Writer { tokens: &tokens, encode: &encode };
        let found = find_forced(&states, &writer, &mut Fuel::new(10_000));
        assert_eq!(found, [(1, 0), (2, 2), (3, 3), (5, 5), (6, 0), (7, 4)]);
        // With one caller only, the token is the one.
        let mut one = states.clone();
        one[0].edges[1].target = 4;
        let found = find_forced(&one, &writer, &mut Fuel::new(10_000));
        assert_eq!(found.first(), Some(&(1, 0)));
        assert!(found.contains(&(2, 1)), "{found:?}");
        assert_eq!(find_forced(&states, &writer, &mut Fuel::new(50)), []);
    }
}
