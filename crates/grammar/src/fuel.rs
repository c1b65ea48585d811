//! The compiler's budget: steps, not time, so that a grammar is refused on every machine or on
//! none.

use crate::{Bound, GrammarError};

/// Steps that are left.
pub(crate) struct Fuel {
    left: u64,
    limit: u64,
}

impl Fuel {
    pub(crate) fn new(limit: u64) -> Fuel {
        Fuel { left: limit, limit }
    }
    /// All that is left, for another use.
    pub(crate) fn take(&mut self) -> Fuel {
        Fuel { left: std::mem::take(&mut self.left), limit: self.limit }
    }
    /// Takes `steps`.
    ///
    /// # Errors
    /// When that many are not left.
    pub(crate) fn burn(&mut self, steps: usize) -> Result<(), GrammarError> {
        match self.left.checked_sub(steps as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(GrammarError::TooLarge { bound: Bound::Steps, limit: self.limit }),
        }
    }
}
