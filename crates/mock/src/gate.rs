//! Seats, and a bounded first-come-first-served queue for them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::script::Capacity;

/// How many may be served, and how many may wait.
pub struct Gate {
    /// Seats and waiting places together.
    places: Arc<Semaphore>,
    /// Tokio's semaphore serves in order of arrival.
    seats: Arc<Semaphore>,
    capacity: Capacity,
}

impl Gate {
    /// A gate with the script's capacity.
    pub fn new(capacity: &Capacity) -> Self {
        Self {
            places: Arc::new(Semaphore::new(capacity.running + capacity.waiting)),
            seats: Arc::new(Semaphore::new(capacity.running)),
            capacity: capacity.clone(),
        }
    }

    /// A place, held until it is dropped; `None` where all are taken.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// A seat, held until it is dropped. Only for holders of a place.
    pub async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.seats).acquire_owned().await.ok()
    }

    /// Requests that are served.
    pub fn running(&self) -> usize {
        self.capacity.running - self.seats.available_permits()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        let places = self.capacity.running + self.capacity.waiting;
        (places - self.places.available_permits()).saturating_sub(self.running())
    }
}
