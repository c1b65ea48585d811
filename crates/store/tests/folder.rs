//! What a folder does beside what every store does.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use common::{MAX_BYTES, keys, list, open, value};
use saccade_store::{Filter, Key, Put, Store};

fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => found.extend(files(&entry.path())),
            Ok(metadata) => found.push((entry.path(), metadata.len())),
            Err(_) => {}
        }
    }
    found
}

fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|(_, bytes)| bytes).sum()
}

fn folder(parameters: &str) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("file://{}?{parameters}", folder.path().display()));
    (folder, store)
}

fn file_of(folder: &Path, key: &Key) -> PathBuf {
    let name = key.name.to_string();
    let path = format!("saccade/{}/{:016x}/{}/{name}", key.model, key.salt, &name[..2]);
    folder.join(path)
}

#[tokio::test]
async fn the_least_recently_used_makes_room() {
    let (folder, store) = folder("max_bytes=100000");
    let keys = keys(1, 300);
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(store.put(key, value(1, 1000)).await, Ok(Put::Stored), "{i}");
        assert!(bytes(folder.path()) <= 100_000, "{i}: {}", bytes(folder.path()));
        // One that is read again and again stays.
        assert_eq!(store.get(&keys[0], MAX_BYTES).await, Ok(Some(value(1, 1000))), "{i}");
    }
    let exist = store.exist(&keys).await.unwrap();
    let there: Vec<usize> = (0..300).filter(|i| exist[*i]).collect();
    assert!((80..=100).contains(&there.len()), "{there:?}");
    assert_eq!(there[0], 0);
    assert_eq!(there[1..], *((300 - there.len() + 1)..300).collect::<Vec<_>>());
    assert_eq!(store.put(&common::keys(2, 1)[0], value(1, 100_001)).await, Ok(Put::Full));
}

#[tokio::test]
async fn a_folder_that_is_larger_at_the_start_shrinks() {
    let (folder, large) = folder("");
    let old = keys(3, 50);
    for key in &old {
        large.put(key, value(1, 1000)).await.unwrap();
    }
    let small = open(&format!("file://{}?max_bytes=20000", folder.path().display()));
    assert_eq!(small.put(&keys(4, 1)[0], value(1, 1000)).await, Ok(Put::Stored));
    assert!(bytes(folder.path()) <= 20_000, "{}", bytes(folder.path()));
    // Folders that became empty are gone.
    let digits = fs::read_dir(file_of(folder.path(), &old[0]).ancestors().nth(2).unwrap());
    let left = files(folder.path()).len();
    assert!(digits.into_iter().flatten().count() <= left, "{left} files");
}

#[tokio::test]
async fn what_is_there_is_whole() {
    let (folder, store) = folder("");
    let key = keys(5, 1)[0];
    let path = file_of(folder.path(), &key);
    let done = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Relaxed) {
                let bytes = fs::metadata(&path).map_or(MAX_BYTES as u64, |file| file.len());
                assert_eq!(bytes, MAX_BYTES as u64);
            }
        }
    });
    for _ in 0..50 {
        assert_eq!(store.put(&key, value(5, MAX_BYTES)).await, Ok(Put::Stored));
        store.remove(&[key]).await.unwrap();
    }
    done.store(true, Relaxed);
    watch.join().unwrap();
}

/// This program again, for a test that is ignored here.
fn again(test: &str, before: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(before.first().map_or("env", |program| *program));
    command.args(before.get(1..).unwrap_or_default());
    command.arg(std::env::current_exe().unwrap()).args(["--ignored", "--exact", test]);
    command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

const FOLDER: &str = "SACCADE_TEST_FOLDER";

#[tokio::test]
#[ignore = "is started by a_writer_that_is_killed_leaves_no_value"]
async fn write_until_killed() {
    let store = open(&format!("file://{}", std::env::var(FOLDER).unwrap()));
    for key in keys(6, 10_000) {
        store.put(&key, value(6, MAX_BYTES)).await.unwrap();
    }
}

#[tokio::test]
async fn a_writer_that_is_killed_leaves_no_value() {
    let (folder, store) = folder("");
    for _ in 0..10 {
        let mut writer = again("write_until_killed", &[], folder.path()).spawn().unwrap();
        let before = files(folder.path()).len();
        while files(folder.path()).len() < before + 3 {
            assert!(writer.try_wait().unwrap().is_none(), "it writes until it is killed");
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let (entries, _) = list(&store, &Filter::default()).await.unwrap();
        assert!(entries.iter().all(|entry| entry.bytes == MAX_BYTES as u64));
        let temporary = files(folder.path()).len() - entries.len();
        assert!(temporary <= 10, "{temporary}");
        store.remove(&keys(6, 200)).await.unwrap();
    }
}

#[tokio::test]
async fn leftovers_are_swept_when_nobody_can_be_writing_them() {
    let (folder, store) = folder("");
    let keys = keys(7, 3);
    store.put(&keys[0], value(1, 9)).await.unwrap();
    let leftover = |number: &str| {
        let mut path = file_of(folder.path(), &keys[0]).into_os_string();
        path.push(format!(".77.{number}.tmp"));
        fs::write(&path, "half").unwrap();
        PathBuf::from(path)
    };
    let (old, new) = (leftover("0"), leftover("1"));
    let foreign = folder.path().join("saccade/notes.tmp");
    fs::write(&foreign, "mine").unwrap();
    for path in [&old, &foreign] {
        let hour = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(path).unwrap().set_modified(hour).unwrap();
    }
    let (entries, strange) = list(&store, &Filter::default()).await.unwrap();
    assert_eq!((entries.len(), strange), (1, 1));
    let next = open(&format!("file://{}", folder.path().display()));
    next.put(&keys[1], value(1, 9)).await.unwrap();
    assert_eq!((old.exists(), new.exists(), foreign.exists()), (false, true, true));
}

#[tokio::test]
async fn values_that_have_expired_leave_the_disk() {
    let (folder, store) = folder("ttl_s=1000");
    let keys = keys(8, 2);
    store.put(&keys[0], value(1, 9)).await.unwrap();
    let file = File::options().write(true).open(file_of(folder.path(), &keys[0])).unwrap();
    let before = SystemTime::now() - Duration::from_secs(1001);
    file.set_times(FileTimes::new().set_modified(before)).unwrap();
    assert_eq!(store.get(&keys[0], MAX_BYTES).await, Ok(None));
    let next = open(&format!("file://{}?ttl_s=1000", folder.path().display()));
    next.put(&keys[1], value(1, 9)).await.unwrap();
    assert_eq!(files(folder.path()).len(), 1);
}

#[tokio::test]
async fn what_is_no_file_is_no_value() {
    let (folder, store) = folder("");
    let keys = keys(9, 3);
    let paths: Vec<PathBuf> = keys.iter().map(|key| file_of(folder.path(), key)).collect();
    paths.iter().for_each(|path| fs::create_dir_all(path.parent().unwrap()).unwrap());
    fs::create_dir(&paths[0]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &paths[1]).unwrap();
    File::create(&paths[2]).unwrap();
    assert_eq!(store.exist(&keys).await, Ok(vec![false; 3]));
    for key in &keys {
        assert_eq!(store.get(key, MAX_BYTES).await, Ok(None));
    }
    assert_eq!(list(&store, &Filter::default()).await.unwrap().1, 2);
    assert_eq!(store.put(&keys[0], value(1, 9)).await.unwrap_err().kind(), "io");
}

#[tokio::test]
#[ignore = "is started by a_disk_without_room_is_full"]
async fn fill_the_disk() {
    let store = open(&format!("file://{}", std::env::var(FOLDER).unwrap()));
    let mut last = Put::Stored;
    for key in &keys(10, 12) {
        last = store.put(key, value(10, 300_000)).await.unwrap();
    }
    assert_eq!(last, Put::Full);
    let (entries, _) = list(&store, &Filter::default()).await.unwrap();
    assert!((2..4).contains(&entries.len()), "{}", entries.len());
    assert_eq!(files(Path::new(&std::env::var(FOLDER).unwrap())).len(), entries.len());
}

#[tokio::test]
async fn a_disk_without_room_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=1m none \"$SACCADE_TEST_FOLDER\" || exit 77; exec \"$@\"";
    let before = ["unshare", "-rm", "sh", "-c", mount, "sh"];
    let output = again("fill_the_disk", &before, folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || text.contains("unshare failed") {
        let what = format!("not tried: no right to mount: {text}");
        assert!(std::env::var_os("SACCADE_CI").is_none(), "{what}");
        return eprintln!("{what}");
    }
    assert!(output.status.success(), "{text}");
}
