//! One event of the ring, checked.

use std::sync::Arc;

use saccade_fetch::layout::{
    KvEvent, SAC_KV_CLEARED, SAC_KV_ON_DEVICE, SAC_KV_ON_HOST, SAC_KV_REMOVED, SAC_KV_STORED,
};

use crate::adapters::{Adapter, Adapters};

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The device's memory.
    Gpu,
    /// The host's memory.
    Cpu,
}

impl Medium {
    /// As vLLM names it.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Gpu => "GPU",
            Medium::Cpu => "CPU",
        }
    }
}

/// What routers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block can be found.
    Stored {
        /// The block's name; not 0.
        key: u64,
        /// Of the block that it continues; none: it is the first of a prompt.
        parent: Option<u64>,
        /// Keeps prompts of different tenants apart; 0: none was named.
        salt: u64,
        /// Under which it was computed; none: the model as it is.
        adapter: Option<Arc<Adapter>>,
        /// Where.
        medium: Medium,
        /// Of the block, all of it.
        tokens: Vec<u32>,
    },
    /// It cannot be found there any more.
    Removed {
        /// The block's name.
        key: u64,
        /// Where.
        medium: Medium,
    },
    /// No block can be found anywhere.
    Cleared,
}

impl Event {
    /// Checks a copy of what the device wrote: the event, and the tokens behind it. None: it makes
    /// no sense, or is of an adapter without a name here. Routers must not take that one's block
    /// for the model's.
    pub(crate) fn check(event: &KvEvent, tokens: &[u8], adapters: &Adapters) -> Option<Event> {
        let medium = match event.tier {
            SAC_KV_ON_DEVICE => Medium::Gpu,
            SAC_KV_ON_HOST => Medium::Cpu,
            _ => return None,
        };
        let names_itself = event.key == event.parent_key;
        match event.kind {
            SAC_KV_CLEARED => Some(Event::Cleared),
            SAC_KV_REMOVED if event.key != 0 => Some(Event::Removed { key: event.key, medium }),
            SAC_KV_STORED if event.key != 0 && !names_itself => Some(Event::Stored {
                key: event.key,
                parent: (event.parent_key != 0).then_some(event.parent_key),
                salt: event.salt,
                adapter: adapters.find(event.adapter).ok()?,
                medium,
                tokens: tokens.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect(),
            }),
            _ => None,
        }
    }
}
