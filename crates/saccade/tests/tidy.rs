//! The rules of STYLE.md that a program can check, over every source file that git would see.

use std::path::{Path, PathBuf};

const MAX_LINES: usize = 900;
const MAX_COLUMNS: usize = 100;
/// Scripts have no formatter here.
const MAX_COLUMNS_PYTHON: usize = 120;
const SOURCES: [&str; 8] = ["rs", "hpp", "cpp", "h", "c", "cu", "cuh", "py"];
const SKIPPED: [&str; 6] = ["target", "build", ".git", "node_modules", ".venv", "results"];
/// Spelled in two parts, so that this file passes its own test.
const LEFTOVERS: [(&str, &str); 5] =
    [("todo", "!("), ("unimpl", "emented!("), ("FIX", "ME"), ("XX", "X "), ("HA", "CK:")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !SKIPPED.iter().any(|s| name == *s) {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|e| SOURCES.iter().any(|s| e == *s)) {
            found.push(path);
        }
    }
}

fn sources(below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root().join(below), &mut found);
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("source files are UTF-8");
            (path.strip_prefix(root()).expect("below the root").display().to_string(), text)
        })
        .collect()
}

fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_and_lines_are_short() {
    let mut wrong = Vec::new();
    for (path, text) in sources("") {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("{path}: {lines} lines, more than {MAX_LINES}"));
        }
        let max_columns = if path.ends_with(".py") { MAX_COLUMNS_PYTHON } else { MAX_COLUMNS };
        for (number, line) in text.lines().enumerate() {
            // rustfmt and clang-format own what they can break; long literals stay whole.
            let literal = line.contains('"') || line.contains("://");
            if line.chars().count() > max_columns && !literal {
                wrong.push(format!("{path}:{}: over {max_columns} columns", number + 1));
            }
        }
    }
    report(&wrong);
}

#[test]
fn nothing_is_left_over() {
    let mut wrong = Vec::new();
    for (path, text) in sources("") {
        for (number, line) in text.lines().enumerate() {
            for (a, b) in LEFTOVERS {
                if line.contains(&format!("{a}{b}")) {
                    wrong.push(format!("{path}:{}: {a}{b}", number + 1));
                }
            }
        }
    }
    report(&wrong);
}

/// Benchmarks run examples that no test builds by name.
#[test]
fn examples_that_scripts_run_are_there() {
    let mut wrong = Vec::new();
    for (path, text) in sources("bench") {
        let words = text.split(|c: char| c.is_whitespace() || "\"',[]()".contains(c));
        let mut words = words.filter(|word| !word.is_empty());
        while words.any(|word| word == "--example") {
            let name = words.next().unwrap_or_default();
            let crates = std::fs::read_dir(root().join("crates")).into_iter().flatten().flatten();
            let file = format!("examples/{name}.rs");
            if !crates.map(|entry| entry.path().join(&file)).any(|path| path.exists()) {
                wrong.push(format!("{path}: no crate has the example {name}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn the_scheduler_knows_no_machine() {
    let banned = [
        "#if",
        "#ifdef",
        "__atomic",
        "std::atomic",
        "atomicCAS",
        "__threadfence",
        "volatile",
        "asm(",
        "asm volatile",
        "malloc",
        "= new ",
        "std::vector",
        "std::string",
        "<thread>",
        "<mutex>",
        "printf",
    ];
    let mut wrong = Vec::new();
    for below in ["device/sched", "device/kv", "device/step", "device/ring/ring_view.hpp"] {
        let mut found = sources(below);
        if found.is_empty() {
            let text = std::fs::read_to_string(root().join(below)).expect("the file exists");
            found.push((below.to_owned(), text));
        }
        for (path, text) in found {
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                if let Some(word) = banned.iter().find(|word| code.contains(**word)) {
                    wrong.push(format!("{path}:{}: {word} belongs to device/platform", number + 1));
                }
            }
        }
    }
    report(&wrong);
}

/// Verbs of the scheduler say what they touch: only what composes them takes all of it.
#[test]
fn scheduler_verbs_take_the_parts_that_they_use() {
    let whole = ["state.hpp", "tick.hpp", "steady.hpp", "seatwise.hpp"];
    let mut wrong = Vec::new();
    for (path, text) in sources("device/sched") {
        if whole.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.contains("Scheduler&") || line.contains("sched/state.hpp") {
                wrong.push(format!("{path}:{}: takes the whole scheduler", number + 1));
            }
        }
    }
    report(&wrong);
}

#[test]
fn planes_do_not_know_each_other() {
    let manifest = |name: &str| {
        std::fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).expect(name)
    };
    for (plane, forbidden) in [
        ("frontend", "saccade-device"),
        ("ring", "saccade-device"),
        ("ring", "saccade-frontend"),
        ("fetch", "saccade-device"),
        ("fetch", "saccade-frontend"),
        ("events", "saccade-device"),
        ("events", "saccade-frontend"),
        ("model", "saccade-ring"),
    ] {
        assert!(!manifest(plane).contains(forbidden), "crates/{plane} must not use {forbidden}");
    }
}
