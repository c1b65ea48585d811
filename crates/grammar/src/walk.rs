//! A place in an automaton, and how bytes move it: the device's walk (`device/grammar/walk.hpp`) in
//! Rust, for tests and for what the compiler finds out about its own result.

use crate::plain::PLAIN_PLACES;
use crate::words::{Automaton, FINAL, MAX_STACK, NEED_SHIFT, NO_PUSH, PLAIN_MASK, PLAIN_SHIFT};

/// A state and the stack above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    state: u32,
    stack: Vec<u32>,
}

impl Walk {
    /// The start of an answer.
    #[must_use]
    pub fn start() -> Walk {
        Walk::at(0)
    }
    pub(crate) fn at(state: u32) -> Walk {
        Walk { state, stack: Vec::new() }
    }

    /// Moves by one byte. False: no answer goes on like this; then the place means nothing.
    pub fn take(&mut self, automaton: &Automaton, byte: u8) -> bool {
        loop {
            if let Some((target, push)) = automaton.find(self.state, byte) {
                return self.enter(automaton, target, push);
            }
            if automaton.state(self.state) & FINAL == 0 {
                return false;
            }
            let Some(back) = self.stack.pop() else { return false };
            self.state = back;
        }
    }

    /// The way out of where an edge leads must fit the stack.
    fn enter(&mut self, automaton: &Automaton, target: u32, push: u32) -> bool {
        let need = |state: u32| (automaton.state(state) >> NEED_SHIFT) as usize;
        if push != NO_PUSH {
            if self.stack.len() + need(push) > MAX_STACK {
                return false;
            }
            self.stack.push(push);
        }
        self.state = target;
        self.stack.len() + need(target) <= MAX_STACK
    }

    /// Moves by several bytes.
    pub fn take_all(&mut self, automaton: &Automaton, bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| self.take(automaton, byte))
    }

    /// Characters but `"`, `\` and controls that may come next, as far as the compiler knows, where
    /// the stack has the room that this takes: 32 or more; n and no more; 0 if it is not known.
    #[must_use]
    pub fn plain_chars(&self, automaton: &Automaton) -> usize {
        let at = self.clone().out_of_rules(automaton);
        let has_room = at.stack.len() + PLAIN_PLACES as usize <= MAX_STACK;
        let plain = automaton.state(at.state) >> PLAIN_SHIFT & PLAIN_MASK;
        if has_room { plain as usize } else { 0 }
    }

    /// The same place without rules that are over: only the next byte would leave them.
    fn out_of_rules(mut self, automaton: &Automaton) -> Walk {
        while automaton.state(self.state) & FINAL != 0 && !automaton.goes_on(self.state) {
            let Some(back) = self.stack.pop() else { break };
            self.state = back;
        }
        self
    }

    /// The token that follows, if the automaton names one.
    #[must_use]
    pub fn forced(&self, automaton: &Automaton) -> Option<u32> {
        let state = self.clone().out_of_rules(automaton).state;
        let forced = automaton.forced();
        let at = forced.binary_search_by_key(&state, |&[state, _]| state).ok()?;
        Some(forced[at][1])
    }

    /// The answer may end here.
    #[must_use]
    pub fn may_end(&self, automaton: &Automaton) -> bool {
        std::iter::once(&self.state)
            .chain(&self.stack)
            .all(|&state| automaton.state(state) & FINAL != 0)
    }

    /// The bytes that the answer may go on with.
    pub fn next_bytes(&self, automaton: &Automaton) -> Vec<u8> {
        (0..=255).filter(|&byte| self.clone().take(automaton, byte)).collect()
    }
}
