//! Documents that name files and symbols name ones that exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words between backticks of a paragraph.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(word: &str) -> bool {
    word.contains('/')
        && !word.contains(' ')
        && !word.starts_with(['/', '$', '<'])
        && !word.contains("::")
}

/// Every quoted path of a document exists; every quoted word in the parentheses after a path occurs
/// in that file.
fn check(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).expect(document);
    let mut wrong = Vec::new();
    for paragraph in text.replace("\n   ", " ").replace("\n  ", " ").lines() {
        for path in quoted(paragraph).filter(|w| is_path(w)) {
            if !root().join(path).exists() {
                wrong.push(format!("{document}: {path} does not exist"));
            }
        }
        for (path, symbols) in paths_with_symbols(paragraph) {
            let source = std::fs::read_to_string(root().join(path)).unwrap_or_default();
            for symbol in quoted(symbols).filter(|s| !is_path(s)) {
                if !source.contains(symbol) {
                    wrong.push(format!("{document}: {path} has no {symbol}"));
                }
            }
        }
    }
    wrong
}

/// `path` (`symbol`, ...) pairs.
fn paths_with_symbols(paragraph: &str) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    let mut rest = paragraph;
    while let Some(at) = rest.find("` (`") {
        let start = rest[..at].rfind('`').map_or(0, |i| i + 1);
        let end = rest[at..].find(')').map_or(rest.len(), |i| at + i);
        if is_path(&rest[start..at]) {
            pairs.push((&rest[start..at], &rest[at + 3..end]));
        }
        rest = &rest[end..];
    }
    pairs
}

#[test]
fn documents_name_what_exists() {
    let wrong: Vec<String> = ["docs/request.md", "ARCHITECTURE.md", "tests/README.md"]
        .iter()
        .flat_map(|d| check(d))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
