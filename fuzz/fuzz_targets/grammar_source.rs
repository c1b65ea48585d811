//! Everything that a grammar is compiled from. What compiles has no dead end: a walk that takes any
//! byte it may take always has a next one, or may end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_grammar::{Limits, Source, Walk, compile};

/// Small, so that a run is short and the bounds are met.
const LIMITS: Limits = Limits { source_bytes: 4096, fuel: 300_000, words: 8192 };
/// Bytes of a walk.
const WALK: usize = 64;

fuzz_target!(|data: &[u8]| {
    let [kind, steps, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // The kept corpus has none of these values: what it has means what it meant.
    let source = match (*kind, kind % 3) {
        (0x80..=0x8f, _) => Source::Grammar(text.into()),
        (0xa0..=0xaf, _) => Source::StructuralTag(text.into()),
        (_, 0) => Source::Regex(text.into()),
        (_, 1) => Source::Choice(text.split('\n').map(str::to_owned).collect()),
        _ => Source::JsonSchema(text.into()),
    };
    // Refusals are answers.
    let Ok(automaton) = compile(&source, &LIMITS) else { return };
    assert!(automaton.words().len() <= LIMITS.words);
    let mut walk = Walk::start();
    for i in 0..WALK {
        let next = walk.next_bytes(&automaton);
        if next.is_empty() {
            assert!(walk.may_end(&automaton), "a dead end");
            break;
        }
        assert!(walk.take(&automaton, next[(usize::from(*steps) + i * 7) % next.len()]));
    }
});
