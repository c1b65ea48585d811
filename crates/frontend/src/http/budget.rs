//! Memory that large requests share. Ordinary ones do not draw on it: nothing that others send can
//! have them refused.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api_error::ApiError;
use crate::limits::UNCHARGED_BYTES;

/// Unit of the budget.
const PERMIT_BYTES: usize = 1024;

/// What is left of `max_body_bytes_total`.
#[derive(Clone)]
pub struct MemoryBudget(Arc<Semaphore>);

/// What one request holds of the budget, until it is dropped.
#[derive(Default)]
pub struct Charge(Option<OwnedSemaphorePermit>);

impl MemoryBudget {
    /// At most `bytes` are held at a time, beside [`UNCHARGED_BYTES`] of each request.
    pub fn new(bytes: usize) -> Self {
        let permits = bytes / PERMIT_BYTES;
        Self(Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

impl Charge {
    /// Raises the charge to what a request that holds `bytes` owes.
    ///
    /// # Errors
    /// 429 if others hold too much for that.
    pub fn cover(&mut self, budget: &MemoryBudget, bytes: usize) -> Result<(), ApiError> {
        let owed = bytes.saturating_sub(UNCHARGED_BYTES).div_ceil(PERMIT_BYTES);
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = owed.checked_sub(held).filter(|more| *more > 0) else { return Ok(()) };
        let full = || ApiError::overloaded("large requests hold all memory there is for them", 1);
        let more = u32::try_from(more).map_err(|_| full())?;
        let permit = self.0.take();
        match budget.0.clone().try_acquire_many_owned(more) {
            Ok(mut grown) => {
                if let Some(held) = permit {
                    grown.merge(held);
                }
                self.0 = Some(grown);
                Ok(())
            }
            Err(_) => {
                self.0 = permit;
                Err(full())
            }
        }
    }

    /// Lowers the charge to what a request that holds no more than `bytes` owes.
    pub fn shrink(&mut self, bytes: usize) {
        let owed = bytes.saturating_sub(UNCHARGED_BYTES).div_ceil(PERMIT_BYTES);
        if let Some(held) = &mut self.0 {
            drop(held.split(held.num_permits().saturating_sub(owed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_held_beyond_the_free_part_is_charged_and_all_of_it_returns() {
        let budget = MemoryBudget::new(64 * PERMIT_BYTES);
        let mut charges: Vec<Charge> = (0..100).map(|_| Charge::default()).collect();
        for charge in &mut charges {
            charge.cover(&budget, UNCHARGED_BYTES).unwrap();
        }
        let mut large = Charge::default();
        // Byte by byte costs what it costs in one piece.
        for bytes in 1..=32 * PERMIT_BYTES {
            large.cover(&budget, UNCHARGED_BYTES + bytes).unwrap();
        }
        assert_eq!(budget.0.available_permits(), 32);
        let mut other = Charge::default();
        let refused = other.cover(&budget, UNCHARGED_BYTES + 33 * PERMIT_BYTES).unwrap_err();
        assert_eq!(refused.status.as_u16(), 429);
        assert!(large.cover(&budget, UNCHARGED_BYTES + 65 * PERMIT_BYTES).is_err());
        assert_eq!(budget.0.available_permits(), 32, "what was held before is still held");
        large.shrink(UNCHARGED_BYTES + 33 * PERMIT_BYTES);
        assert_eq!(budget.0.available_permits(), 32, "no more is taken");
        large.shrink(UNCHARGED_BYTES + PERMIT_BYTES);
        assert_eq!(budget.0.available_permits(), 63);
        drop((large, other, charges));
        assert_eq!(budget.0.available_permits(), 64);
    }
}
