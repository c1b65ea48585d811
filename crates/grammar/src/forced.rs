//! Tokens of which a grammar leaves no choice. Where only one text may follow, a draw could only
//! decide how to cut it into tokens. So the tokens that a tokenizer would write are named with the
//! automaton, and the device appends them without a draw.
//!
//! A token is named only if no longer one could stand in its place: one that holds the end of the
//! forced text and the beginning of what follows is the model's to choose.

use crate::assemble::FlatState;
use crate::error::GrammarError;
use crate::fuel::Fuel;
use crate::vocabulary::Vocabulary;

/// Bytes of forced text that are looked at together.
const MAX_TEXT: usize = 128;
/// Steps of the compiler that a byte takes to encode.
const ENCODE_STEPS: usize = 4;
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
                Some(rest) if rest.first().is_some_and(|&byte| next.has(byte)) => return Ok(true),
                Some(_) => {}
            }
        }
        Ok(false)
    }
}

/// The bytes that may follow a text.
enum Next {
    Any,
    OneOf([bool; 256]),
}

impl Next {
    fn has(&self, byte: u8) -> bool {
        match self {
            Next::Any => true,
            Next::OneOf(bytes) => bytes[usize::from(byte)],
        }
    }
}

/// The state and the depth of the stack before a byte, as far as the text itself has pushed.
#[derive(Clone, Copy)]
struct Place {
    state: u32,
    depth: usize,
}

/// The one text that may follow a state.
struct Forced {
    text: Vec<u8>,
    /// Before each byte.
    places: Vec<Place>,
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

/// The text that is forced behind a state, whatever the stack holds there.
fn forced_from(states: &[FlatState], state: u32) -> Forced {
    let (mut text, mut places) = (Vec::new(), Vec::new());
    let mut stack = Vec::new();
    let mut at = state;
    while let Some((byte, target, push)) = only_edge(&states[at as usize]) {
        if text.len() == MAX_TEXT {
            return Forced { text, places, next: Next::Any };
        }
        text.push(byte);
        places.push(Place { state: at, depth: stack.len() });
        stack.extend(push);
        at = target;
        while states[at as usize].is_final && states[at as usize].edges.is_empty() {
            let Some(back) = stack.pop() else { break };
            at = back;
        }
    }
    let next = next_bytes(states, &states[at as usize]);
    Forced { text, places, next }
}

/// What may follow a state; any byte where its rule may be over.
fn next_bytes(states: &[FlatState], state: &FlatState) -> Next {
    if state.is_final {
        return Next::Any;
    }
    let mut bytes = [false; 256];
    let default = state.default.map(|other| &states[other as usize]);
    for edge in state.edges.iter().chain(default.iter().flat_map(|other| &other.edges)) {
        bytes[usize::from(edge.low)..=usize::from(edge.high)].fill(true);
    }
    Next::OneOf(bytes)
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
    for (state, is_head) in heads(states).into_iter().enumerate() {
        if !is_head || found[state].is_some() || only_edge(&states[state]).is_none() {
            continue;
        }
        let forced = forced_from(states, state as u32);
        if name_tokens(&forced, writer, &mut found, fuel).is_err() {
            break;
        }
    }
    let named = found.into_iter().enumerate();
    named.filter_map(|(state, token)| Some((state as u32, token?))).collect()
}

/// Names the tokens of a forced text, each by the state before it.
fn name_tokens(
    forced: &Forced,
    writer: &Writer<'_>,
    found: &mut [Option<u32>],
    fuel: &mut Fuel,
) -> Result<(), GrammarError> {
    fuel.burn(ENCODE_STEPS * forced.text.len())?;
    let whole = forced.text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let next = if whole.len() == forced.text.len() { &forced.next } else { &Next::Any };
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
        // What the text itself pushed before this token is not on every stack at its state.
        let places = &forced.places[begin..end];
        if places.iter().all(|place| place.depth >= places[0].depth) {
            found[places[0].state as usize].get_or_insert(id);
        }
        begin = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::FlatEdge;

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
        assert_eq!(find_forced(&states, &writer, &mut Fuel::new(50)), []);
    }
}
