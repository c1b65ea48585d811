//! Object storage that speaks S3.

use std::error::Error as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::stream::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt,
    RetryConfig,
};

use crate::batch::{in_order, tell_all};
use crate::trouble::words;
use crate::url::{Common, S3Place};
use crate::{Entry, Filter, Found, Key, Listing, OpenError, Put, Trouble};

/// Between the parts of a key.
const SEPARATOR: char = '/';
/// Callers have deadlines of their own, and shorter ones.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a region anywhere: what stores that are not Amazon's take.
const DEFAULT_REGION: &str = "us-east-1";
/// What the client library says of an answer of a store without room: it has no other way to tell.
const INSUFFICIENT_STORAGE: &str = "status code: 507";
/// Keys that one round of `longest_prefix` asks about.
const PROBES: usize = 8;

#[derive(Clone)]
pub(crate) struct S3 {
    common: Common,
    /// Namespace and what the URL puts in front of it.
    namespace: String,
    client: Arc<AmazonS3>,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Clients print their credentials.
        f.debug_struct("S3").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl S3 {
    pub(crate) fn open(
        place: &S3Place,
        common: Common,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, OpenError> {
        let mut builder = AmazonS3Builder::new().with_region(DEFAULT_REGION);
        for (name, value) in variables {
            let name = name.to_ascii_lowercase();
            // Others of that prefix are not about S3.
            if name.starts_with("aws_")
                && let Ok(setting) = name.parse()
            {
                builder = builder.with_config(setting, value);
            }
        }
        let http = place.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
        let options = place.ca.iter().try_fold(options(&common), certificates)?;
        builder = builder
            .with_bucket_name(&place.bucket)
            .with_client_options(options.with_allow_http(http))
            .with_retry(no_retries());
        if let Some(endpoint) = &place.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        if let Some(region) = &place.region {
            builder = builder.with_region(region);
        }
        let client = builder.build().map_err(|error| OpenError::Client(words(&error)))?;
        let slash = if place.prefix.is_empty() { "" } else { "/" };
        let namespace = format!("{}{slash}{}", place.prefix, common.namespace);
        Ok(Self { common, namespace, client: Arc::new(client) })
    }

    fn path(&self, key: &Key) -> Path {
        Path::from(key.text(&self.namespace, SEPARATOR))
    }

    fn is_over(&self, object: &ObjectMeta) -> bool {
        self.common.ttl.is_some_and(|ttl| age(object).is_some_and(|age| age >= ttl))
    }

    async fn is_there(&self, key: Key) -> Result<bool, Trouble> {
        match self.client.head(&self.path(&key)).await {
            Ok(object) => Ok(object.size > 0 && !self.is_over(&object)),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(trouble(&error)),
        }
    }

    pub(crate) async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        let asked = keys.iter().copied().map(|key| self.is_there(key));
        in_order(asked, self.common.connections).try_collect().await
    }

    /// The last one first: mostly all are there. Then a few at a time, evenly spread over what is
    /// not known yet.
    pub(crate) async fn longest_prefix(&self, keys: &[Key]) -> Result<usize, Trouble> {
        let Some(last) = keys.last() else { return Ok(0) };
        if self.is_there(*last).await? {
            return Ok(keys.len());
        }
        // The prefix is at least `from` long, and shorter than `until`.
        let (mut from, mut until) = (0, keys.len());
        while from + 1 < until {
            let unknown = until - from - 1;
            let probes = unknown.min(PROBES);
            let at: Vec<usize> = (1..=probes).map(|i| from + i * unknown / probes).collect();
            let asked: Vec<Key> = at.iter().map(|length| keys[length - 1]).collect();
            let there = self.exist(&asked).await?;
            let found = there.iter().take_while(|there| **there).count();
            if let Some(absent) = at.get(found) {
                until = *absent;
            }
            if found > 0 {
                from = at[found - 1];
            }
        }
        Ok(from)
    }

    pub(crate) async fn get_many(
        &self,
        keys: &[Key],
        max_bytes: usize,
        tell: impl FnMut(usize, Found) -> ControlFlow<()>,
    ) -> Result<(), Trouble> {
        let read = keys.iter().copied().map(|key| self.read(key, max_bytes));
        tell_all(in_order(read, self.common.connections), tell).await
    }

    async fn read(&self, key: Key, max_bytes: usize) -> Result<Found, Trouble> {
        let answer = match self.client.get(&self.path(&key)).await {
            Ok(answer) => answer,
            Err(Error::NotFound { .. }) => return Ok(Found::Absent),
            Err(error) => return Err(trouble(&error)),
        };
        if answer.meta.size == 0 || self.is_over(&answer.meta) {
            return Ok(Found::Absent);
        }
        // The head of the answer says how long it is, before any of it is taken in.
        if answer.meta.size > max_bytes as u64 {
            return Ok(Found::TooLarge);
        }
        let size = answer.meta.size as usize;
        let mut value = BytesMut::with_capacity(size);
        let mut parts = answer.into_stream();
        while let Some(part) = parts.try_next().await.map_err(|error| trouble(&error))? {
            if value.len() + part.len() > size {
                return Err(Trouble::Protocol(format!("more than the {size} bytes announced")));
            }
            value.extend_from_slice(&part);
        }
        if value.len() < size {
            return Err(Trouble::Io(format!("{} of {size} bytes, then the end", value.len())));
        }
        Ok(Found::Value(value.freeze()))
    }

    /// Asks first: not every store knows conditional writes, and a value is large. Two that store
    /// at the same time store the same.
    pub(crate) async fn put(&self, key: &Key, value: Bytes) -> Result<Put, Trouble> {
        if self.is_there(*key).await? {
            return Ok(Put::Already);
        }
        match self.client.put(&self.path(key), value.into()).await {
            Ok(_) => Ok(Put::Stored),
            // Of the bucket: an object need not be there.
            Err(error @ Error::NotFound { .. }) => Err(trouble(&error)),
            Err(error) if is_full(&error) => Ok(Put::Full),
            Err(error) => Err(trouble(&error)),
        }
    }

    /// One by one, in parallel: not every store knows how to delete many.
    pub(crate) async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        let removed = keys.iter().copied().map(|key| self.remove_one(key));
        in_order(removed, self.common.connections).try_collect().await
    }

    async fn remove_one(&self, key: Key) -> Result<(), Trouble> {
        match self.client.delete(&self.path(&key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(trouble(&error)),
        }
    }

    pub(crate) async fn list(
        &self,
        filter: &Filter,
        mut tell: impl FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Listing, Trouble> {
        let prefix = Path::from(filter.prefix(&self.namespace, SEPARATOR));
        let mut objects = self.client.list(Some(&prefix));
        let mut listing = Listing::default();
        while let Some(object) = objects.try_next().await.map_err(|error| trouble(&error))? {
            let key = Key::from_text(object.location.as_ref(), &self.namespace, SEPARATOR);
            let Some(key) = key else {
                listing.foreign += 1;
                continue;
            };
            if !filter.takes(&key) || self.is_over(&object) {
                continue;
            }
            let entry = Entry { key, bytes: object.size, age: age(&object) };
            if listing.tell(entry, &mut tell).is_break() {
                break;
            }
        }
        Ok(listing)
    }
}

/// None for a time to come: two clocks differ.
fn age(object: &ObjectMeta) -> Option<Duration> {
    SystemTime::now().duration_since(object.last_modified.into()).ok()
}

fn options(common: &Common) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_pool_max_idle_per_host(common.connections)
        .with_http1_only()
}

fn certificates(
    options: ClientOptions,
    path: &std::path::PathBuf,
) -> Result<ClientOptions, OpenError> {
    let ca = |why: String| OpenError::Ca { path: path.display().to_string(), why };
    let pem = std::fs::read(path).map_err(|error| ca(error.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| ca(words(&error)))?;
    Ok(certificates.into_iter().fold(options, ClientOptions::with_root_certificate))
}

/// Retries are the guard's decision (`crate::guard`).
fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Generic { .. }) && error.to_string().contains(INSUFFICIENT_STORAGE)
}

fn trouble(error: &Error) -> Trouble {
    let kind = match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Trouble::Refused,
        Error::NotFound { .. } => Trouble::Refused,
        _ => match http_error(error) {
            Some(HttpErrorKind::Connect) => Trouble::Connect,
            Some(HttpErrorKind::Timeout | HttpErrorKind::Request | HttpErrorKind::Interrupted) => {
                Trouble::Io
            }
            _ => Trouble::Protocol,
        },
    };
    kind(words(&cause(error)))
}

/// The last words: the first ones are the operation and its URL.
fn cause(error: &Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// What went wrong below, if it was the connection.
fn http_error(error: &Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        source = error.source();
    }
    None
}
