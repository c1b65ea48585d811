//! `--packed-weights-cache` on the real server: the second start maps what the first wrote.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Result, Server};
use serde_json::json;

/// Packed files that a process has mapped.
fn mapped_by(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let mut found: Vec<String> =
        paths.filter(|path| path.ends_with(".packed")).map(str::to_owned).collect();
    found.dedup();
    found
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    Ok(std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
}

/// The greedy answer, and the packed files that the device plane has mapped.
async fn answer(flags: &[&str]) -> Result<(String, Vec<String>)> {
    let server = Server::start(flags).await?;
    let body = json!({"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0.0});
    let (status, answer) = server.post("/v1/completions", &body).await?;
    assert_eq!(status, 200, "{answer}");
    let planes = server.planes("device");
    assert_eq!(planes.len(), 1);
    Ok((answer["choices"][0]["text"].to_string(), mapped_by(planes[0])))
}

#[tokio::test]
async fn a_second_start_maps_the_file_of_the_first() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let flags = ["--packed-weights-cache", dir.path().to_str().ok_or("path")?];
    let (without, none) = answer(&[]).await?;
    assert!(none.is_empty());
    let (first, packed) = answer(&flags).await?;
    assert!(packed.is_empty(), "{packed:?}");
    let written = files(dir.path())?;
    assert_eq!(written.len(), 1, "{written:?}");
    let inode = written[0].metadata()?.ino();
    let (second, mapped) = answer(&flags).await?;
    assert_eq!(mapped, [written[0].display().to_string()]);
    assert_eq!(files(dir.path())?, written);
    assert_eq!(written[0].metadata()?.ino(), inode, "it was written again");
    assert_eq!((&first, &second), (&without, &without));

    // One that cannot be used is replaced, and the answer is the same.
    std::fs::write(&written[0], "no weights")?;
    let (third, packed) = answer(&flags).await?;
    assert!(packed.is_empty(), "{packed:?}");
    assert_eq!(third, without);
    assert!(written[0].metadata()?.len() > 4096);
    Ok(())
}

#[test]
fn the_flag_is_refused_where_nothing_is_packed() -> Result<()> {
    for (more, words) in [
        (["--device", "null"], "only --device cpu packs weights"),
        (["--load-format", "dummy"], "are never kept"),
    ] {
        let ended = Command::new(env!("CARGO_BIN_EXE_saccade"))
            .args(["serve", "--port", "0", "--packed-weights-cache", "/nonexistent"])
            .args(more)
            .output()?;
        assert!(!ended.status.success());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(words), "{said}");
    }
    Ok(())
}
