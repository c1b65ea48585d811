//! Where results go: files that are known to be writable before anything is measured, written
//! whole or not at all, and text that fits a terminal.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use saccade_report::Report;
use serde::Serialize;

/// Columns of a terminal.
pub(crate) const WIDTH: usize = 80;

/// `-`: the standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Checks that the file of a flag can be written; leaves it as it was, or absent.
///
/// # Errors
/// Names the flag and the file.
pub(crate) fn check_writable(flag: &str, path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path.filter(|path| !is_stdout(path)) else { return Ok(()) };
    let check = || -> anyhow::Result<()> {
        if path.exists() {
            OpenOptions::new().append(true).open(path)?;
        }
        if is_special(path) {
            return Ok(());
        }
        let part = part_of(path);
        File::create(&part)?;
        Ok(fs::remove_file(part)?)
    };
    check().with_context(|| format!("{flag}: cannot write {}", path.display()))
}

/// Makes the folder of a flag, and checks that files can be made in it.
///
/// # Errors
/// Names the flag and the folder.
pub(crate) fn check_folder(flag: &str, folder: &Path) -> anyhow::Result<()> {
    let named = || format!("{flag}: cannot write into {}", folder.display());
    fs::create_dir_all(folder).with_context(named)?;
    let probe = folder.join(format!(".saccade-{}.part", std::process::id()));
    File::create(&probe).with_context(named)?;
    fs::remove_file(probe).with_context(named)
}

/// A device or a pipe: it is written in place.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|of| !of.is_file())
}

fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

/// Writes a file so that a reader (or a kill) never sees half of it.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let target = if is_special(path) { path.to_owned() } else { part_of(path) };
    let all = || -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(&target)?);
        write(&mut file)?;
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        if target != path {
            fs::rename(&target, path)?;
        }
        Ok(())
    };
    all().with_context(|| format!("write {}", path.display()))
}

/// Writes JSON: to the standard output for `-`.
///
/// # Errors
/// The file, or the one next to it with `.part` at its end, cannot be written.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let write = |mut to: &mut dyn Write| -> anyhow::Result<()> {
        serde_json::to_writer_pretty(&mut to, value)?;
        Ok(to.write_all(b"\n")?)
    };
    if is_stdout(path) {
        return write(&mut std::io::stdout().lock()).context("write to the standard output");
    }
    write_whole(path, write)
}

/// Writes a page.
///
/// # Errors
/// As [`write_json`].
pub(crate) fn write_page(path: &Path, page: &Report) -> anyhow::Result<()> {
    write_whole(path, |to| Ok(to.write_all(page.to_html().as_bytes())?))
}

/// Words broken into lines of at most [`WIDTH`] columns; those after the first are indented. What
/// has no space in it stays whole. Control characters become spaces: words of a server must not
/// move the cursor.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let lead = plain.len() - plain.trim_start().len();
    let mut lines = vec![" ".repeat(lead)];
    for word in plain.split(' ').skip(lead) {
        let line = lines.last().map_or("", String::as_str);
        let is_fresh = line.trim().is_empty();
        let width = line.chars().count() + usize::from(!is_fresh) + word.chars().count();
        if width > WIDTH && !is_fresh {
            lines.push(" ".repeat(indent) + word);
        } else if let Some(line) = lines.last_mut() {
            line.push_str(if is_fresh { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Facts as lines with aligned values.
pub(crate) fn lines(facts: &[(&'static str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        wrapped(&format!("{name:width$}  {value}"), width + 2) + "\n"
    };
    facts.iter().map(line).collect()
}

/// A number of things: `1 core`, `2 cores`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_indented() {
        let text = format!("client  {}", "loop lags 0.1 ms, ".repeat(9).trim_end());
        let lines = wrapped(&text, 8);
        assert!(lines.lines().count() == 3, "{lines}");
        assert!(lines.lines().all(|line| line.chars().count() <= WIDTH), "{lines}");
        assert!(
            lines.lines().skip(1).all(|line| line.starts_with("        l")
                || line.starts_with("        0")
                || line.starts_with("        m")),
            "{lines}"
        );
        let joined = lines.split_whitespace().collect::<Vec<_>>();
        assert_eq!(joined, text.split_whitespace().collect::<Vec<_>>());
        assert_eq!(wrapped("a\u{1b}[31mb", 0), "a [31mb");
        assert_eq!(wrapped(&"x".repeat(200), 2).lines().count(), 1);
    }

    #[test]
    fn a_check_leaves_no_trace_and_names_the_flag() {
        let folder = std::env::temp_dir().join(format!("saccade-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (new, old) = (folder.join("new.json"), folder.join("old.json"));
        fs::write(&old, "kept").unwrap();
        for path in [&new, &old] {
            check_writable("--json", Some(path)).unwrap();
        }
        assert!(!new.exists() && fs::read_to_string(&old).unwrap() == "kept");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let inside_a_file = old.join("x.json");
        let error = check_writable("--json", Some(&inside_a_file)).unwrap_err();
        assert!(error.to_string().contains("--json"), "{error}");
        check_writable("--json", Some(Path::new("-"))).unwrap();
        check_writable("--json", Some(Path::new("/dev/null"))).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn plurals() {
        assert_eq!((counted(1, "core"), counted(2, "core")), ("1 core".into(), "2 cores".into()));
    }
}
