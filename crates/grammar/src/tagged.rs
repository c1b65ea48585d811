//! Free text with JSON between two markers: wherever the first one is, what the schema accepts and
//! the second one follow.

use crate::json;
use crate::nfa::{Label, Nfa, State};
use crate::{GrammarError, Tagged};

pub(crate) fn compile(nfa: &mut Nfa, tagged: &Tagged) -> Result<(), GrammarError> {
    let Tagged { begin, end, schema, once } = tagged;
    if begin.is_empty() || !begin.is_ascii() || end.is_empty() {
        return Err(GrammarError::invalid("markers must not be empty, the first one ASCII", ""));
    }
    let main = nfa.main();
    let free = nfa.state()?;
    nfa.skip(main.start, free)?;
    let body = free_text(nfa, begin.as_bytes(), free, main.end)?;
    let (inside, behind) = (nfa.state()?, nfa.state()?);
    space(nfa, body)?;
    json::add_schema(nfa, schema, body, inside)?;
    space(nfa, inside)?;
    nfa.literal(end.as_bytes(), inside, behind)?;
    nfa.skip(behind, if *once { main.end } else { free })
}

/// Text from `free` on in which the marker is not, and which may end at `end`. Returns where it is
/// once the marker has come.
fn free_text(nfa: &mut Nfa, marker: &[u8], free: State, end: State) -> Result<State, GrammarError> {
    // As many bytes of the marker have come.
    let mut behind = vec![free];
    for _ in marker {
        behind.push(nfa.state()?);
    }
    for come in 0..marker.len() {
        let from = behind[come];
        nfa.skip(from, end)?;
        let mut byte = 0;
        while byte < 0x80 {
            let to = longest(marker, come, byte);
            let first = byte;
            while byte < 0x80 && longest(marker, come, byte) == to {
                byte += 1;
            }
            nfa.edge(from, Label::Bytes(first, byte - 1), behind[to])?;
        }
        nfa.chars('\u{80}', char::MAX, from, free)?;
    }
    Ok(behind[marker.len()])
}

/// How many bytes of the marker a text ends with that ended with `come` of them before `byte`: the
/// most.
fn longest(marker: &[u8], come: usize, byte: u8) -> usize {
    let mut text = marker[..come].to_vec();
    text.push(byte);
    (0..=text.len()).rev().find(|&n| text.ends_with(&marker[..n])).unwrap_or(0)
}

/// White space before what comes at `at`.
fn space(nfa: &mut Nfa, at: State) -> Result<(), GrammarError> {
    for byte in *b" \n" {
        nfa.edge(at, Label::Bytes(byte, byte), at)?;
    }
    Ok(())
}
