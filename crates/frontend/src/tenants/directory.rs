//! Keys and their tenants, read from files that may change while the server runs.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use saccade_ring::layout::SAC_MAX_TENANTS;

use super::file::{Defaults, key_of, read_keys, read_tenants};
use super::{Counts, DEFAULT_NAME, Tenant};
use crate::error::FrontendError;
use crate::http::auth::KeyDigest;
use crate::watched::{Files, Watched};

/// Where keys come from.
#[derive(Debug, Clone)]
pub struct KeySources {
    /// Keys themselves.
    pub keys: Vec<String>,
    /// A file of keys.
    pub key_file: Option<PathBuf>,
    /// A file of tenants with keys.
    pub tenants_file: Option<PathBuf>,
    /// For tenants that do not say.
    pub defaults: Defaults,
}

/// All tenants.
pub struct Tenants {
    sources: KeySources,
    /// Read by every request, without a lock.
    now: ArcSwap<Directory>,
    files: Files,
}

/// Tenants and keys as the files had them at one time.
#[derive(Default)]
struct Directory {
    tenants: Vec<Arc<Tenant>>,
    /// By tenant. None: every request is of the only tenant.
    keys: Vec<(KeyDigest, usize)>,
}

impl Tenants {
    /// Reads the files.
    ///
    /// # Errors
    /// With the file, the tenant, and what is wrong.
    pub fn read(sources: KeySources) -> Result<Self, FrontendError> {
        let paths = sources.key_file.iter().chain(&sources.tenants_file);
        let files = Files::new(paths.cloned().collect());
        let now = ArcSwap::from_pointee(Directory::read(&sources, &Directory::default())?);
        Ok(Self { sources, now, files })
    }

    /// Whether a key is required.
    pub fn keys_required(&self) -> bool {
        !self.directory().keys.is_empty()
    }

    /// The tenant of a request with this key, and the key if there are keys.
    pub fn of(&self, key: Option<KeyDigest>) -> Option<(Arc<Tenant>, Option<KeyDigest>)> {
        let directory = self.directory();
        if directory.keys.is_empty() {
            return Some((directory.tenants.first()?.clone(), None));
        }
        let digest = key?;
        let index = digest.find(directory.keys.iter().map(|(key, index)| (key, *index)))?;
        Some((directory.tenants.get(index)?.clone(), Some(digest)))
    }

    /// Name and counts of each, for the metrics.
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let directory = self.directory();
        directory.tenants.iter().map(|t| (t.name.clone(), t.ledger.counts())).collect()
    }

    /// Whether several share the device.
    pub fn are_several(&self) -> bool {
        self.directory().tenants.len() > 1
    }

    fn directory(&self) -> Arc<Directory> {
        self.now.load_full()
    }
}

/// Counts go on. Requests in flight keep their tenant as it was.
impl Watched for Tenants {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    fn reload_if_changed(&self) -> Option<Result<(), FrontendError>> {
        if !self.files.changed() {
            return None;
        }
        let read = Directory::read(&self.sources, &self.directory());
        Some(read.map(|next| self.now.store(Arc::new(next))))
    }
}

impl Directory {
    fn read(sources: &KeySources, before: &Self) -> Result<Self, FrontendError> {
        let wrong = |reason| FrontendError::Config { field: "api_key", reason };
        let mut plain: Vec<KeyDigest> =
            sources.keys.iter().map(|key| key_of(key)).collect::<Result<_, _>>().map_err(wrong)?;
        if let Some(path) = &sources.key_file {
            plain.extend(read_keys(path)?);
        }
        let mut entries = match &sources.tenants_file {
            Some(path) => read_tenants(path, sources.defaults)?,
            None => Vec::new(),
        };
        if entries.is_empty() || !plain.is_empty() {
            let default = Tenant { terms: sources.defaults.terms, ..Tenant::named(DEFAULT_NAME) };
            entries.push((default, plain));
        }
        Self::of(entries, before).map_err(wrong)
    }

    /// Tenants take over the counts of those before them that had their name.
    fn of(entries: Vec<(Tenant, Vec<KeyDigest>)>, before: &Self) -> Result<Self, String> {
        let weight = |tenant: &Tenant| f64::from(tenant.device_share.weight);
        let weights: f64 = entries.iter().map(|(tenant, _)| weight(tenant)).sum();
        let mut directory = Self::default();
        for (index, (mut tenant, keys)) in entries.into_iter().enumerate() {
            if directory.tenants.iter().any(|other| other.name == tenant.name) {
                return Err(format!(
                    "keys without a tenant are of `{}`, and so is a tenant",
                    tenant.name
                ));
            }
            for key in keys {
                match key.find(directory.keys.iter().map(|(key, index)| (key, *index))) {
                    Some(other) if other != index => {
                        let other = &directory.tenants[other].name;
                        return Err(format!(
                            "`{other}` and `{}` have a key in common",
                            tenant.name
                        ));
                    }
                    Some(_) => {}
                    None => directory.keys.push((key, index)),
                }
            }
            tenant.share = weight(&tenant) / weights;
            tenant.device_share.tenant = index as u32 % SAC_MAX_TENANTS;
            if let Some(old) = before.tenants.iter().find(|old| old.name == tenant.name) {
                tenant.ledger = old.ledger.clone();
            }
            directory.tenants.push(Arc::new(tenant));
        }
        Ok(directory)
    }
}
