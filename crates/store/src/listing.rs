//! What a listing tells.

use std::ops::ControlFlow;
use std::time::Duration;

use saccade_chunk::ModelId;

use crate::Key;

/// Which values a listing is about: all of the namespace, or less.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    /// Only of this model.
    pub model: Option<ModelId>,
    /// Only under this salt.
    pub salt: Option<u64>,
}

impl Filter {
    pub(crate) fn takes(&self, key: &Key) -> bool {
        self.model.is_none_or(|model| model == key.model)
            && self.salt.is_none_or(|salt| salt == key.salt)
    }

    /// Of the text of every key that it takes.
    pub(crate) fn prefix(&self, namespace: &str, separator: char) -> String {
        let mut prefix = format!("{namespace}{separator}");
        if let Some(model) = &self.model {
            prefix += &format!("{model}{separator}");
            if let Some(salt) = self.salt {
                prefix += &format!("{salt:016x}{separator}");
            }
        }
        prefix
    }
}

/// A value that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Its length.
    pub bytes: u64,
    /// Since it was stored; Redis knows it only of values that expire.
    pub age: Option<Duration>,
}

/// What a listing went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listing {
    /// Values that were told.
    pub told: u64,
    /// Things under this namespace that are no keys of ours. They are left alone.
    pub foreign: u64,
}

impl Listing {
    /// Tells one entry.
    pub(crate) fn tell(
        &mut self,
        entry: Entry,
        tell: &mut impl FnMut(Entry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.told += 1;
        tell(entry)
    }
}
