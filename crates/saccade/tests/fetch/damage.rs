//! Values that are not what their names say: they are told from good ones, counted by kind, and
//! make room for good ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use xxhash_rust::xxh3::Xxh3;

use crate::common::{Result, Server};
use crate::world::*;

const CHUNKS: u64 = 3;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Changes a value and makes its checksum right again.
fn resealed(good: &[u8], edit: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = good.to_vec();
    edit(&mut bytes);
    let mut hash = Xxh3::new();
    hash.update(&bytes[..96]);
    hash.update(&bytes[112..]);
    bytes[96..112].copy_from_slice(&hash.digest128().to_le_bytes());
    bytes
}

type Spoil = fn(&[u8], &[u8]) -> Vec<u8>;

/// What is done to every value (it, and another one), how that is counted, and whether nobody else
/// can use what is left.
const WAYS: [(&str, Option<&str>, bool, Spoil); 13] = [
    ("truncated", Some("length"), true, |good, _| good[..good.len() / 2].to_vec()),
    ("lengthened", Some("length"), true, |good, _| [good, b"x"].concat()),
    ("a hundred megabytes", Some("length"), true, |_, _| vec![0x5a; 100_000_000]),
    ("garbage", Some("magic"), true, |good, _| vec![0x5a; good.len()]),
    ("a bit of the end", Some("checksum"), true, |good, _| {
        let mut bytes = good.to_vec();
        let end = bytes.len() - 1;
        bytes[end] ^= 4;
        bytes
    }),
    ("a bit of the header", Some("checksum"), true, |good, _| {
        let mut bytes = good.to_vec();
        bytes[70] ^= 1;
        bytes
    }),
    ("swapped", Some("name"), true, |_, other| other.to_vec()),
    ("of another model", Some("model"), true, |good, _| resealed(good, |b| b[40] ^= 1)),
    ("of another place", Some("span"), true, |good, _| resealed(good, |b| b[25] ^= 4)),
    ("of another codec", Some("codec"), false, |good, _| resealed(good, |b| b[6] = 99)),
    ("of another version", Some("version"), false, |good, _| resealed(good, |b| b[4] ^= 0x80)),
    ("ill coded", Some("payload"), true, |good, _| resealed(good, |b| b[112] ^= 1)),
    ("empty", None, true, |_, _| Vec::new()),
];

struct Scene {
    folder: PathBuf,
    plain: Server,
    one: Server,
    other: Server,
    /// Files of the documents so far.
    seen: BTreeSet<PathBuf>,
}

impl Scene {
    /// A document's values, written by the one server.
    async fn write(&mut self, n: u64) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let kept = commands(&self.one, "store", "done").await?;
        ask(&self.one, &body(&document(n, 800), 12)).await?;
        stored(&self.one, kept + CHUNKS as f64).await?;
        // Those of other documents may still be written again.
        let mut new = files(&self.folder);
        new.retain(|path| path.extension().is_none() && self.seen.insert(path.clone()));
        let read = |path: PathBuf| Ok((path.clone(), std::fs::read(path)?));
        new.into_iter().map(read).collect()
    }

    /// The other server finds what was spoiled, and answers as if there were nothing.
    async fn check(&self, n: u64, way: &str, kind: Option<&str>) -> Result<()> {
        let labels: Vec<(&str, &str)> = kind.iter().map(|kind| ("kind", *kind)).collect();
        let name = "saccade:fetch_rejected_chunks_total";
        let before = if kind.is_some() { count(&self.other, name, &labels).await? } else { 0.0 };
        let body = body(&document(n, 800), 12);
        let expected = ask(&self.plain, &body).await?;
        let answer = ask(&self.other, &body).await?;
        assert_eq!(answer.said, expected.said, "{way}");
        assert_eq!(answer.cached, 0, "{way}");
        if kind.is_some() {
            at_least(&self.other, name, &labels, before + 1.0).await?;
        }
        Ok(())
    }
}

/// Waits until one of the values is as it was: the first chunk's. What is behind a chunk that is
/// rejected is not wanted any more, and found to be damaged by later requests.
async fn restored(values: &BTreeMap<PathBuf, Vec<u8>>, way: &str) -> Result<()> {
    let began = Instant::now();
    let good = |(path, value): &(&PathBuf, &Vec<u8>)| {
        std::fs::read(path).is_ok_and(|bytes| bytes == **value)
    };
    loop {
        if values.iter().any(|value| good(&value)) {
            return Ok(());
        }
        if began.elapsed() > SOON {
            return Err(format!("{way}: no value is good again").into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn damaged_values_cost_nothing_but_time() -> Result<()> {
    let place = Place::folder()?;
    let Place::Folder(folder) = &place else { unreachable!() };
    let url = place.url("kv");
    let flags: &[&[&str]] = &[&PATIENT, &ROOMY];
    let mut scene = Scene {
        folder: folder.path().to_owned(),
        plain: plain().await?,
        one: serve(&url, flags).await?,
        other: serve(&url, flags).await?,
        seen: BTreeSet::new(),
    };
    for (n, (way, kind, is_damage, spoil)) in WAYS.into_iter().enumerate() {
        let n = 300 + n as u64;
        let values = scene.write(n).await?;
        assert_eq!(values.len(), CHUNKS as usize);
        let mut others = values.values().cycle().skip(1);
        for (path, good) in &values {
            std::fs::write(path, spoil(good, others.next().unwrap()))?;
        }
        scene.check(n, way, kind).await?;
        if is_damage {
            restored(&values, way).await?;
        } else {
            // Another version of this program can use them.
            for (path, good) in &values {
                let bytes = std::fs::read(path)?;
                assert!(!bytes.is_empty() && bytes != *good, "{way}");
            }
        }
        eprintln!("{way}: as it should be");
    }
    // Gone altogether.
    let values = scene.write(400).await?;
    values.keys().try_for_each(std::fs::remove_file)?;
    scene.check(400, "removed", None).await?;
    restored(&values, "removed").await
}

/// Folders are made again.
#[tokio::test]
async fn a_folder_removed_under_a_server_comes_back() -> Result<()> {
    let place = Place::folder()?;
    let Place::Folder(folder) = &place else { unreachable!() };
    let url = place.url("kv");
    let flags: &[&[&str]] = &[&PATIENT, &ROOMY];
    let (plain, one, other) =
        (plain().await?, serve(&url, flags).await?, serve(&url, flags).await?);
    let first = body(&document(500, 800), 12);
    let expected = ask(&plain, &first).await?.said;
    assert_eq!(ask(&one, &first).await?.said, expected);
    stored(&one, CHUNKS as f64).await?;
    std::fs::remove_dir_all(folder.path().join("kv"))?;
    let answer = ask(&other, &first).await?;
    assert_eq!((answer.said, answer.cached), (expected, 0));
    stored(&other, CHUNKS as f64).await?;
    assert_eq!(files(folder.path()).len(), CHUNKS as usize);
    Ok(())
}
