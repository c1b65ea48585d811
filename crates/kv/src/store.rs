//! The store that a command works on.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use saccade_chunk::{ModelId, Name};
use saccade_store::{Entry, Guarded, Key, Limits, Listing, Store, StoreUrl, Trouble};

use crate::args::ChoiceArgs;

/// For the first answer of a store: longer than a fetch plane waits, short for a person.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Of one operation; values are megabytes, and the way may be long.
const DEADLINE: Duration = Duration::from_secs(30);
/// Of a listing, which goes through all keys.
const LIST_DEADLINE: Duration = Duration::from_secs(3600);
/// Values that are read at a time.
pub(crate) const AT_A_TIME: usize = 8;

/// Opens a store, and makes sure that it answers.
pub(crate) async fn open(url: &StoreUrl) -> anyhow::Result<Guarded> {
    if url.kind() == "memory" {
        bail!("--prefix-store: memory: is within the server that uses it, and cannot be seen here");
    }
    if let Some(folder) = url.folder().filter(|folder| !folder.is_dir()) {
        bail!("--prefix-store: there is no folder {}", folder.display());
    }
    let limits =
        Limits { deadline: DEADLINE, max_in_flight: AT_A_TIME, failures: 3, ..Limits::default() };
    let store = Guarded::new(Store::open(url).context("--prefix-store")?, limits);
    let nobody =
        Key { model: ModelId::from_bytes([0; 32]), salt: 0, name: Name::from_bytes([0; 32]) };
    let keys = [nobody];
    let answer = tokio::time::timeout(FIRST_ANSWER, store.exist(&keys)).await;
    answer.unwrap_or(Err(Trouble::Timeout(FIRST_ANSWER))).map_err(|trouble| said(url, &trouble))?;
    Ok(store)
}

/// A store's trouble in a sentence with its URL.
pub(crate) fn said(url: &StoreUrl, trouble: &Trouble) -> anyhow::Error {
    anyhow!("--prefix-store {url}: {trouble}")
}

/// Tells the chosen chunks; the listing counts them and what is foreign. Redis may tell one twice.
pub(crate) async fn each(
    store: &Guarded,
    choice: &ChoiceArgs,
    mut tell: impl FnMut(Entry) + Send,
) -> Result<Listing, Trouble> {
    let mut told = 0;
    let chosen = |entry: Entry| {
        if choice.takes(&entry.key) {
            told += 1;
            tell(entry);
        }
        ControlFlow::Continue(())
    };
    let listing = store.list(&choice.filter(), LIST_DEADLINE, chosen).await?;
    Ok(Listing { told, ..listing })
}
