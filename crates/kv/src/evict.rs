//! `saccade kv evict`: removes what is chosen.

use std::process::ExitCode;
use std::time::Duration;

use saccade_store::{Entry, MAX_KEYS};
use serde::Serialize;

use crate::args::EvictArgs;
use crate::sample::Sample;
use crate::store::{each, open, said};
use crate::text::{bar, bytes, count};

/// Version of the object that `--json` prints.
const SCHEMA: u32 = 1;
/// Chunks that are held in memory at a time; a store with more is gone through again.
const MAX_HELD: usize = 1 << 20;

/// What went; also what `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Evicted {
    schema: u32,
    store: String,
    dry_run: bool,
    chunks: u64,
    bytes: u64,
    /// Kept, because `--older-than` was asked for and their age is not known.
    unknown_age: u64,
    /// Left alone.
    foreign: u64,
    interrupted: bool,
}

pub(crate) async fn run(args: &EvictArgs) -> anyhow::Result<ExitCode> {
    let store = args.store.prefix_store.to_string();
    let mut evicted =
        Evicted { schema: SCHEMA, store, dry_run: args.dry_run, ..Evicted::default() };
    match crate::unless_interrupted(evict(args, &mut evicted)).await? {
        Some(done) => done?,
        None => evicted.interrupted = true,
    }
    let text = if args.json { serde_json::to_string_pretty(&evicted)? } else { evicted.text() };
    crate::print(&text)?;
    Ok(if evicted.interrupted { crate::interrupted() } else { ExitCode::SUCCESS })
}

async fn evict(args: &EvictArgs, evicted: &mut Evicted) -> anyhow::Result<()> {
    let url = &args.store.prefix_store;
    let store = open(url).await?;
    let choice = args.choice();
    loop {
        let mut held = Sample::new(if args.dry_run { 0 } else { MAX_HELD });
        let (mut chunks, mut bytes, mut unknown_age) = (0, 0, 0);
        let told = each(&store, &choice, |entry| match is_old(&entry, args.older_than) {
            Some(false) => {}
            None => unknown_age += 1,
            Some(true) => {
                chunks += 1;
                bytes += entry.bytes;
                held.add(entry);
            }
        });
        let listing = told.await.map_err(|trouble| said(url, &trouble))?;
        (evicted.foreign, evicted.unknown_age) = (listing.foreign, unknown_age);
        if args.dry_run {
            (evicted.chunks, evicted.bytes) = (chunks, bytes);
            return Ok(());
        }
        let is_last = !held.left_out();
        let entries = held.into_entries();
        let bar = bar("evicting", entries.len() as u64);
        for some in entries.chunks(MAX_KEYS) {
            let keys: Vec<_> = some.iter().map(|entry| entry.key).collect();
            store.remove(&keys).await.map_err(|trouble| said(url, &trouble))?;
            evicted.chunks += some.len() as u64;
            evicted.bytes += some.iter().map(|entry| entry.bytes).sum::<u64>();
            bar.inc(some.len() as u64);
        }
        bar.finish_and_clear();
        if is_last {
            return Ok(());
        }
    }
}

/// None: it is not known.
fn is_old(entry: &Entry, older_than: Option<Duration>) -> Option<bool> {
    match older_than {
        None => Some(true),
        Some(least) => entry.age.map(|age| age >= least),
    }
}

impl Evicted {
    fn text(&self) -> String {
        let verb = if self.dry_run { "would remove" } else { "removed" };
        let chunks = count(self.chunks, "chunk");
        let mut text = format!("{}\n\n{verb} {chunks}, {}", self.store, bytes(self.bytes));
        if self.unknown_age > 0 {
            let kept = count(self.unknown_age, "chunk");
            text += &format!(
                "\nkept {kept} of unknown age: Redis tells it only of values that expire, to those \
                 who give their ttl_s in the URL"
            );
        }
        if self.foreign > 0 {
            let things = count(self.foreign, "thing");
            text += &format!("\n{things} under this namespace not of ours, left alone");
        }
        text
    }
}
