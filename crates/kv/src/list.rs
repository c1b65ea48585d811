//! `saccade kv list`: what is stored, by model and salt.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use futures_util::stream::{self, StreamExt};
use saccade_chunk::CHUNK_TOKENS;
use saccade_store::{Entry, Guarded, Listing};
use serde::Serialize;

use crate::args::ListArgs;
use crate::sample::Sample;
use crate::store::{AT_A_TIME, each, open, said};
use crate::text::{UNKNOWN, age, bytes, count, table};
use crate::verify::value::read;

/// Version of the object that `--json` prints.
const SCHEMA: u32 = 1;
/// Pairs of a model and a salt; a salt per API key makes many.
const MAX_GROUPS: usize = 65_536;
/// Values of a group that are read for their codecs.
const SAMPLED: usize = 8;
/// Digits of a model that are shown.
const MODEL_DIGITS: usize = 16;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Listed {
    schema: u32,
    store: String,
    groups: Vec<Group>,
    total: Totals,
    foreign: u64,
}

#[derive(Debug, Serialize)]
struct Group {
    model: String,
    salt: String,
    #[serde(flatten)]
    totals: Totals,
    /// Of the values that were read; none: without `--codecs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    codecs: Option<BTreeMap<String, u64>>,
    #[serde(skip)]
    sample: Sample,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Totals {
    chunks: u64,
    bytes: u64,
    tokens: u64,
    #[serde(rename = "oldest_s", serialize_with = "seconds")]
    oldest: Option<Duration>,
    #[serde(rename = "newest_s", serialize_with = "seconds")]
    newest: Option<Duration>,
}

fn seconds<S: serde::Serializer>(age: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    age.map(|age| age.as_secs()).serialize(to)
}

impl Totals {
    fn add(&mut self, entry: &Entry) {
        self.chunks += 1;
        self.bytes += entry.bytes;
        self.tokens += CHUNK_TOKENS as u64;
        self.oldest = self.oldest.max(entry.age);
        self.newest = [self.newest, entry.age].into_iter().flatten().min();
    }
}

pub(crate) async fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let Some(listed) = crate::unless_interrupted(list(args)).await? else {
        return Ok(crate::interrupted());
    };
    let listed = listed?;
    let text = if args.json { serde_json::to_string_pretty(&listed)? } else { listed.text() };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn list(args: &ListArgs) -> anyhow::Result<Listed> {
    let url = &args.store.prefix_store;
    let store = open(url).await?;
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    let mut total = Totals::default();
    let mut too_many = false;
    let told = each(&store, &args.choice, |entry| {
        total.add(&entry);
        let (model, salt) = (entry.key.model, entry.key.salt);
        let group = (*model.bytes(), salt);
        if groups.len() == MAX_GROUPS && !groups.contains_key(&group) {
            too_many = true;
            return;
        }
        let group = groups.entry(group).or_insert_with(|| Group {
            model: model.to_string(),
            salt: format!("{salt:016x}"),
            totals: Totals::default(),
            codecs: None,
            sample: Sample::new(SAMPLED),
        });
        group.totals.add(&entry);
        if args.codecs {
            group.sample.add(entry);
        }
    });
    let Listing { foreign, .. } = told.await.map_err(|trouble| said(url, &trouble))?;
    if too_many {
        bail!("more than {MAX_GROUPS} models and salts: choose some with --model or --salt");
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    if args.codecs {
        for group in &mut groups {
            group.codecs = Some(codecs(&store, group.sample.clone()).await);
        }
    }
    Ok(Listed { schema: SCHEMA, store: url.to_string(), groups, total, foreign })
}

/// How the values of a sample are coded; what is wrong is counted under its kind.
async fn codecs(store: &Guarded, sample: Sample) -> BTreeMap<String, u64> {
    let all = stream::iter(sample.into_entries()).map(|entry| read(store, entry));
    let mut read = all.buffer_unordered(AT_A_TIME);
    let mut codecs = BTreeMap::new();
    while let Some(outcome) = read.next().await {
        let name = match outcome {
            Ok(value) => value.codec().map_or_else(|wrong| wrong.to_owned(), str::to_owned),
            Err(trouble) => trouble.kind().to_owned(),
        };
        *codecs.entry(name).or_insert(0) += 1;
    }
    codecs
}

impl Listed {
    fn text(&self) -> String {
        let has_codecs = self.groups.iter().any(|group| group.codecs.is_some());
        let mut head: Vec<&str> =
            vec!["model", "salt", "chunks", "bytes", "tokens", "oldest", "newest"];
        head.extend(has_codecs.then_some("codecs"));
        let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
        for group in &self.groups {
            let model = group.model.get(..MODEL_DIGITS).unwrap_or(&group.model);
            let mut row = row(model, &group.salt, &group.totals);
            row.extend(group.codecs.as_ref().map(words));
            rows.push(row);
        }
        if self.groups.len() != 1 {
            rows.push(row("total", "", &self.total));
        }
        let mut text = format!("{}\n\n{}", self.store, table(&rows, 2));
        if self.foreign > 0 {
            let things = count(self.foreign, "thing");
            text += &format!("\n\n{things} under this namespace not of ours, left alone");
        }
        text
    }
}

fn row(model: &str, salt: &str, totals: &Totals) -> Vec<String> {
    vec![
        model.to_owned(),
        salt.to_owned(),
        totals.chunks.to_string(),
        bytes(totals.bytes),
        totals.tokens.to_string(),
        age(totals.oldest),
        age(totals.newest),
    ]
}

fn words(codecs: &BTreeMap<String, u64>) -> String {
    if codecs.is_empty() {
        return UNKNOWN.into();
    }
    let words: Vec<String> = codecs.iter().map(|(codec, n)| format!("{codec} {n}")).collect();
    words.join(", ")
}
