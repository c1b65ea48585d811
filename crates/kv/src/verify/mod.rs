//! `saccade kv verify`: reads values, and checks that each is what its key names.

pub(crate) mod value;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use futures_util::stream::{self, StreamExt};
use saccade_store::{Entry, Guarded, Key, MAX_KEYS, Trouble};
use serde::Serialize;

use crate::args::VerifyArgs;
use crate::sample::Sample;
use crate::store::{AT_A_TIME, each, open, said};
use crate::text::{bar, bytes, count};
use value::{Read, TOO_LONG, judge, read};

/// Version of the object that `--json` prints.
const SCHEMA: u32 = 1;
/// Chunks of one run; some 160 bytes of memory each.
const MAX_CHUNKS: usize = 4 << 20;
/// Wrong chunks whose keys are told.
const MAX_TOLD: usize = 100;

/// What was found so far; also what `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Found {
    schema: u32,
    store: String,
    /// Chosen, of which some may not have been read.
    chunks: u64,
    /// That were read.
    right: u64,
    bytes: u64,
    /// Removed by others since they were listed.
    gone: u64,
    /// By kind.
    wrong: BTreeMap<&'static str, u64>,
    /// Kinds by key; not all, where there are many.
    wrong_keys: BTreeMap<String, &'static str>,
    /// Not read because of the store's trouble, by its kind.
    unread: BTreeMap<&'static str, u64>,
    removed: u64,
    interrupted: bool,
    #[serde(skip)]
    to_remove: Vec<Key>,
}

pub(crate) async fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let url = &args.store.prefix_store;
    let mut found = Found { schema: SCHEMA, store: url.to_string(), ..Found::default() };
    match crate::unless_interrupted(verify(args, &mut found)).await? {
        Some(done) => done?,
        None => found.interrupted = true,
    }
    let text = if args.json { serde_json::to_string_pretty(&found)? } else { found.text() };
    crate::print(&text)?;
    if found.interrupted {
        return Ok(crate::interrupted());
    }
    let is_right = found.wrong.is_empty() && found.unread.is_empty();
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::from(crate::EXIT_WRONG) })
}

async fn verify(args: &VerifyArgs, found: &mut Found) -> anyhow::Result<()> {
    let url = &args.store.prefix_store;
    let store = open(url).await?;
    let max = args.sample.map_or(MAX_CHUNKS, |sample| sample.get().min(MAX_CHUNKS));
    let mut sample = Sample::new(max);
    let told = each(&store, &args.choice, |entry| sample.add(entry)).await;
    told.map_err(|trouble| said(url, &trouble))?;
    if args.sample.is_none() && sample.left_out() {
        bail!("more than {MAX_CHUNKS} chunks: choose some with --model, --salt or --sample");
    }
    let entries = sample.into_entries();
    found.chunks = entries.len() as u64;
    let bar = bar("verifying", found.chunks);
    let mut judged = stream::iter(entries)
        .map(async |entry| (entry, read_and_judge(&store, entry).await))
        .buffer_unordered(AT_A_TIME);
    while let Some((entry, outcome)) = judged.next().await {
        if let Err(trouble @ Trouble::BreakerOpen { .. }) = &outcome {
            bar.finish_and_clear();
            return Err(said(url, trouble));
        }
        found.add(&entry, &outcome);
        bar.inc(1);
        let wrong: u64 = found.wrong.values().sum();
        bar.set_message(format!("{}, {wrong} wrong", bytes(found.bytes)));
        if args.remove && found.to_remove.len() == MAX_KEYS {
            found.remove(&store).await.map_err(|trouble| said(url, &trouble))?;
        }
    }
    bar.finish_and_clear();
    if args.remove {
        found.remove(&store).await.map_err(|trouble| said(url, &trouble))?;
    }
    Ok(())
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Right,
    Gone,
    Wrong(&'static str),
}

async fn read_and_judge(store: &Guarded, entry: Entry) -> Result<Outcome, Trouble> {
    let value = match read(store, entry).await? {
        Read::Value(value) => value,
        Read::Gone => return Ok(Outcome::Gone),
        Read::TooLong => return Ok(Outcome::Wrong(TOO_LONG)),
    };
    let judged = tokio::task::spawn_blocking(move || judge(&entry.key, &value)).await;
    // A codec that panics has been given what it should have refused.
    let wrong = judged.map_or(Some("payload"), |judged| judged.err().map(|wrong| wrong.kind()));
    Ok(wrong.map_or(Outcome::Right, Outcome::Wrong))
}

impl Found {
    fn add(&mut self, entry: &Entry, outcome: &Result<Outcome, Trouble>) {
        match outcome {
            Ok(Outcome::Right) => {
                self.right += 1;
                self.bytes += entry.bytes;
            }
            Ok(Outcome::Gone) => self.gone += 1,
            Ok(Outcome::Wrong(kind)) => {
                *self.wrong.entry(kind).or_insert(0) += 1;
                if self.wrong_keys.len() < MAX_TOLD {
                    self.wrong_keys.insert(entry.key.text("", '/'), kind);
                }
                self.to_remove.push(entry.key);
            }
            Err(trouble) => *self.unread.entry(trouble.kind()).or_insert(0) += 1,
        }
    }

    async fn remove(&mut self, store: &Guarded) -> Result<(), Trouble> {
        let keys = std::mem::take(&mut self.to_remove);
        if !keys.is_empty() {
            store.remove(&keys).await?;
        }
        self.removed += keys.len() as u64;
        Ok(())
    }

    fn text(&self) -> String {
        let wrong: u64 = self.wrong.values().sum();
        let chunks = count(self.chunks, "chunk");
        let (right, size) = (self.right, bytes(self.bytes));
        let mut text = format!("{}\n\n{chunks}: {right} right ({size}), {wrong} wrong", self.store);
        if self.gone > 0 {
            text += &format!(", {} removed meanwhile", self.gone);
        }
        for (what, kinds) in [("wrong", &self.wrong), ("not read", &self.unread)] {
            if !kinds.is_empty() {
                let kinds: Vec<String> = kinds.iter().map(|(k, n)| format!("{k} {n}")).collect();
                text += &format!("\n{what}: {}", kinds.join(", "));
            }
        }
        for (key, kind) in &self.wrong_keys {
            text += &format!("\n  {kind:<8}  {}", key.trim_start_matches('/'));
        }
        if wrong > self.wrong_keys.len() as u64 {
            text += &format!("\n  and {} more", wrong - self.wrong_keys.len() as u64);
        }
        if self.removed > 0 {
            text += &format!("\nremoved {}", count(self.removed, "chunk"));
        }
        text
    }
}
