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
        let mut at = self.clone();
        // Only the next byte would leave a rule that is over.
        while automaton.state(at.state) & FINAL != 0 && !automaton.goes_on(at.state) {
            let Some(back) = at.stack.pop() else { break };
            at.state = back;
        }
        let has_room = at.stack.len() + PLAIN_PLACES as usize <= MAX_STACK;
        let plain = automaton.state(at.state) >> PLAIN_SHIFT & PLAIN_MASK;
        if has_room { plain as usize } else { 0 }
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
