//! Tenants: who a request comes from, by its key; what it may ask for; how much at a time.
//!
//! Without a file of tenants there is one, `default`, without limits. Counts are of this frontend
//! plane: several of them each allow as much.

mod directory;
mod file;
mod ledger;
mod meter;
mod terms;

pub use directory::{KeySources, Tenants};
pub use file::Defaults;
pub use ledger::{Admission, Counts, Ledger};
pub use terms::{OwnTargets, Targets, Terms};

use std::sync::Arc;

#[cfg(doc)]
use saccade_ring::layout::SAC_MAX_TENANTS;

/// Name of the tenant of keys that no file names, and of requests without a key.
const DEFAULT_NAME: &str = "default";

/// One tenant.
pub struct Tenant {
    /// Its name in the file, in errors and metrics.
    pub name: String,
    /// What its requests may ask for.
    pub terms: Terms,
    /// Salt of requests that name none; 0: shared.
    pub cache_salt: u64,
    /// Of the device's time.
    pub device_share: DeviceShare,
    limits: Limits,
    /// Its share of the seats, of all tenants' weights.
    share: f64,
    ledger: Arc<Ledger>,
}

/// How much at a time; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Choices in flight.
    pub max_requests: Option<u64>,
    /// Tokens of choices in flight: prompts, and what they may produce.
    pub max_tokens: Option<u64>,
    /// Choices that begin per minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and answers per minute.
    pub tokens_per_minute: Option<u64>,
}

/// By what the device shares its time between tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceShare {
    /// Number of the tenant; below [`SAC_MAX_TENANTS`], so some share one where there are more.
    pub tenant: u32,
    /// Weight of its share.
    pub weight: u32,
}

impl Default for DeviceShare {
    fn default() -> Self {
        Self { tenant: 0, weight: 1 }
    }
}

impl Tenant {
    /// One without limits that may ask for anything.
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            terms: Terms::ANY,
            cache_salt: 0,
            device_share: DeviceShare::default(),
            limits: Limits::default(),
            share: 1.0,
            ledger: Arc::default(),
        }
    }

    /// The part of `seats` that is this tenant's whatever others do; at least one.
    pub fn guaranteed_seats(&self, seats: u32) -> u64 {
        ((f64::from(seats) * self.share) as u64).max(1)
    }

    /// Where its use is counted.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Choices in flight.
    pub fn requests_in_flight(&self) -> u64 {
        self.ledger.counts().requests
    }
}
