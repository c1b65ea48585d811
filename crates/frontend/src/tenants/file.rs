//! The files that say which keys are accepted, and what the tenants behind them may do.

use std::collections::BTreeMap;
use std::path::Path;

use saccade_ring::layout::SAC_MAX_TENANT_WEIGHT;
use serde::Deserialize;

use super::terms::{OwnTargets, Targets, Terms};
use super::{DeviceShare, Limits, Tenant};
use crate::error::FrontendError;
use crate::http::auth::KeyDigest;
use crate::limits::{MAX_API_KEY_BYTES, MAX_PRIORITY, MAX_SLO_MS, MIN_SLO_MS};
use crate::validate::hash_salt;

/// Bytes of a file of keys or tenants.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Tenants of a file: each one has its own series.
const MAX_TENANTS: usize = 1000;
/// Characters of a tenant's name.
const MAX_NAME_CHARS: usize = 64;
/// Bounds of `weight`.
const WEIGHTS: (u32, u32) = (1, SAC_MAX_TENANT_WEIGHT);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tenants: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    key_sha256: Vec<String>,
    priority: Option<[i64; 2]>,
    slo_ttft_ms: Option<[f64; 2]>,
    slo_tpot_ms: Option<[f64; 2]>,
    max_requests: Option<u64>,
    max_tokens: Option<u64>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    weight: Option<u32>,
    cache_salt: Option<String>,
}

/// What entries are completed with.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Terms of entries that do not say.
    pub terms: Terms,
    /// The server's own targets.
    pub own: OwnTargets,
}

/// The tenants of a `--tenants` file, with their keys.
///
/// # Errors
/// With the file and the tenant's field.
pub fn read_tenants(
    path: &Path,
    defaults: Defaults,
) -> Result<Vec<(Tenant, Vec<KeyDigest>)>, FrontendError> {
    let wrong = |reason: String| FrontendError::File { path: path.display().to_string(), reason };
    let file: File =
        serde_saphyr::from_str(&text_of(path)?).map_err(|e| wrong(one_line(&e.to_string())))?;
    if file.tenants.is_empty() || file.tenants.len() > MAX_TENANTS {
        let count = file.tenants.len();
        return Err(wrong(format!("`tenants` must name 1 to {MAX_TENANTS} tenants, got {count}")));
    }
    let read = |(name, entry)| read_entry(name, entry, defaults).map_err(wrong);
    file.tenants.into_iter().map(read).collect()
}

/// The keys of an `--api-key-file`: one per line; empty lines and lines that begin with # do not
/// count.
///
/// # Errors
/// With the file and the line.
pub fn read_keys(path: &Path) -> Result<Vec<KeyDigest>, FrontendError> {
    let wrong = |reason: String| FrontendError::File { path: path.display().to_string(), reason };
    let text = text_of(path)?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<KeyDigest> = keys
        .map(|(number, key)| key_of(key).map_err(|e| wrong(format!("line {number}: {e}"))))
        .collect::<Result<_, _>>()?;
    // An empty file must not open the server.
    if keys.is_empty() { Err(wrong("there is no key in it".into())) } else { Ok(keys) }
}

fn text_of(path: &Path) -> Result<String, FrontendError> {
    let wrong = |reason: String| FrontendError::File { path: path.display().to_string(), reason };
    let bytes = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(wrong(format!("must have at most {MAX_FILE_BYTES} bytes, has {bytes}")));
    }
    std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))
}

/// The digest of a key as a client sends it.
///
/// # Errors
/// For a key that no header can carry.
pub fn key_of(key: &str) -> Result<KeyDigest, String> {
    let visible = key.bytes().all(|b| b.is_ascii_graphic());
    if key.is_empty() || key.len() > MAX_API_KEY_BYTES || !visible {
        // Never the key itself: errors are logged.
        return Err(format!("a key must be 1 to {MAX_API_KEY_BYTES} visible ASCII characters"));
    }
    Ok(KeyDigest::of(key.as_bytes()))
}

fn read_entry(
    name: String,
    entry: Entry,
    defaults: Defaults,
) -> Result<(Tenant, Vec<KeyDigest>), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@".contains(c);
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !name.chars().all(plain) {
        return Err(format!(
            "the tenant's name `{name}` must be 1 to {MAX_NAME_CHARS} letters, digits or -_.:/@"
        ));
    }
    read_named(&name, entry, defaults).map_err(|reason| format!("tenant `{name}`: {reason}"))
}

fn read_named(
    name: &str,
    entry: Entry,
    defaults: Defaults,
) -> Result<(Tenant, Vec<KeyDigest>), String> {
    let mut keys: Vec<KeyDigest> =
        entry.keys.iter().map(|key| key_of(key)).collect::<Result<_, _>>()?;
    for digest in &entry.key_sha256 {
        let parsed = KeyDigest::from_hex(digest);
        keys.push(parsed.ok_or("`key_sha256` must hold SHA-256 digests, 64 hex digits each")?);
    }
    if keys.is_empty() {
        return Err("it has no key: `keys` or `key_sha256`".into());
    }
    let weight = entry.weight.unwrap_or(WEIGHTS.0);
    if !(WEIGHTS.0..=WEIGHTS.1).contains(&weight) {
        return Err(format!("`weight` must be between {} and {}", WEIGHTS.0, WEIGHTS.1));
    }
    let Defaults { terms: ordinary, own } = defaults;
    let slo = (MIN_SLO_MS, MAX_SLO_MS);
    let classes = range("priority", entry.priority, (-MAX_PRIORITY, MAX_PRIORITY))?;
    let ttft_ms = range("slo_ttft_ms", entry.slo_ttft_ms, slo)?;
    let tpot_ms = range("slo_tpot_ms", entry.slo_tpot_ms, slo)?;
    let targets = |(from, to), own_ms| Targets::within(from, to, own_ms);
    let terms = Terms {
        priority: classes.unwrap_or(ordinary.priority),
        slo_ttft: ttft_ms.map_or(ordinary.slo_ttft, |ms| targets(ms, own.ttft_ms)),
        slo_tpot: tpot_ms.map_or(ordinary.slo_tpot, |ms| targets(ms, own.tpot_ms)),
    };
    let limits = Limits {
        max_requests: at_least_one("max_requests", entry.max_requests)?,
        max_tokens: at_least_one("max_tokens", entry.max_tokens)?,
        requests_per_minute: at_least_one("requests_per_minute", entry.requests_per_minute)?,
        tokens_per_minute: at_least_one("tokens_per_minute", entry.tokens_per_minute)?,
    };
    let cache_salt = entry.cache_salt.map_or(0, |salt| hash_salt(&salt));
    let device_share = DeviceShare { tenant: 0, weight };
    Ok((Tenant { terms, limits, device_share, cache_salt, ..Tenant::named(name) }, keys))
}

fn range<T: PartialOrd + Copy + std::fmt::Display>(
    field: &str,
    given: Option<[T; 2]>,
    (min, max): (T, T),
) -> Result<Option<(T, T)>, String> {
    let Some([from, to]) = given else { return Ok(None) };
    if min <= from && from <= to && to <= max {
        return Ok(Some((from, to)));
    }
    Err(format!("`{field}` must be [FROM, TO] within {min} and {max}, got [{from}, {to}]"))
}

fn at_least_one(field: &str, given: Option<u64>) -> Result<Option<u64>, String> {
    if given == Some(0) { Err(format!("`{field}` must be at least 1")) } else { Ok(given) }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
