//! The audit against numbers that a Python script computes independently, and its use of memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use clap::Parser;
use saccade_audit::result::{Audit, Finding};
use saccade_audit::{Args, collect};
use saccade_doctor::reference::Prices;
use serde_json::{Value, json};

const ROWS: u64 = 1_000_000;
const FEWER_ROWS: u64 = 100_000;
/// Bytes by which ten times the rows may raise the peak: buffers and the allocator's moods.
const ALLOWED_GROWTH: u64 = 8 << 20;
/// Set for the copy of this test that measures its own memory.
const CHILD: &str = "SACCADE_AUDIT_FILE";

#[derive(Parser)]
struct Command_ {
    #[command(flatten)]
    args: Args,
}

fn audit(file: &Path) -> Audit {
    let command = Command_::parse_from(["audit".as_ref(), file.as_os_str()]);
    let (tally, inputs) = collect(&command.args).expect("readable accounting");
    let prices = Prices::load(None, None, None).expect("the built-in prices");
    Audit::new(&tally, inputs, &prices, command.args.allow)
}

/// Writes accounting of this many rows, and returns what must be found in it.
fn generate(rows: u64, file: &Path) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/independent.py");
    let output = Command::new("python3").arg(script).arg(rows.to_string()).arg(file).output();
    let output = output.expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the script prints JSON")
}

fn close(ours: f64, theirs: &Value, what: &str) {
    let theirs = theirs.as_f64().expect(what);
    assert!((ours - theirs).abs() <= 1e-9 * theirs.abs(), "{what}: {ours}, not {theirs}");
}

fn compare(finding: &Finding, expected: &Value, name: &str) {
    assert!(finding.exact, "{name}");
    close(finding.gpu_hours, &expected["gpu_hours"], name);
    let theirs = expected["percentiles"].as_object().expect("percentiles by name");
    assert_eq!(finding.percentiles.len(), theirs.len());
    for (percentile, value) in &finding.percentiles {
        close(*value, &theirs[&percentile.name()], &format!("{name} {}", percentile.name()));
    }
}

#[test]
fn a_million_rows_give_the_percentiles_of_the_script_in_constant_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (few, many) = (folder.path().join("few.txt"), folder.path().join("many.txt"));
    generate(FEWER_ROWS, &few);
    let expected = generate(ROWS, &many);

    let ours = audit(&many);
    assert_eq!(ours.rows.read, expected["read"]);
    assert_eq!(ours.rows.counted, expected["counted"]);
    let groups = expected["groups"].as_object().expect("groups by name");
    assert_eq!(1 + ours.by_model.len() + ours.by_place.len(), groups.len());
    compare(&ours.overall, &groups["all"], "all");
    for (kind, findings) in [("model", &ours.by_model), ("place", &ours.by_place)] {
        for finding in findings {
            let name = format!("{kind} {}", finding.name);
            compare(finding, &groups[&name], &name);
        }
    }
    for (rule, share) in &ours.overall.below {
        close(*share, &expected["below"][rule], rule);
    }
    for goal in &ours.cost.goals {
        let theirs = &expected["missing_core_hours"][goal.cores_per_gpu.to_string()];
        close(goal.core_hours, theirs, "missing core hours");
    }

    let (small, large) = (peak_bytes(&few), peak_bytes(&many));
    println!("peak: {small} bytes for {FEWER_ROWS} rows, {large} for {ROWS}");
    assert!(large < small + ALLOWED_GROWTH, "{large} bytes against {small}");
    let file = std::fs::metadata(&many).expect("the file").len();
    assert!(large < file / 2, "{large} bytes for a file of {file}");
}

#[test]
fn a_long_list_of_pods_takes_constant_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = |count: usize| {
        let path = folder.path().join(format!("{count}.json"));
        let mut out = BufWriter::new(File::create(&path).expect("a file"));
        writeln!(out, "{{\n  \"apiVersion\": \"v1\",\n  \"items\": [").expect("room");
        for i in 0..count {
            let comma = if i == 0 { "" } else { "," };
            writeln!(out, "{comma}{:#}", pod(i)).expect("room");
        }
        writeln!(out, "  ],\n  \"kind\": \"List\"\n}}").expect("room");
        drop(out);
        path
    };
    let (few, many) = (list(2_000), list(20_000));
    assert_eq!(audit(&many).overall.jobs, 20_000);
    let (small, large) = (peak_bytes(&few), peak_bytes(&many));
    println!("peak: {small} bytes for 2000 pods, {large} for 20000");
    assert!(large < small + ALLOWED_GROWTH, "{large} bytes against {small}");
    let file = std::fs::metadata(&many).expect("the file").len();
    assert!(large < file / 2, "{large} bytes for a file of {file}");
}

/// A pod with the ballast that real ones carry.
fn pod(i: usize) -> Value {
    let managed: Vec<Value> =
        (0..8).map(|k| json!({"manager": format!("m{k}"), "fieldsV1": {"f:spec": {}}})).collect();
    let resources = json!({"requests": {"cpu": format!("{}m", i % 9 * 250)},
        "limits": {"nvidia.com/gpu": (1 + i % 8).to_string()}});
    json!({
        "kind": "Pod",
        "metadata": {"name": format!("p{i}"), "namespace": format!("n{}", i % 40),
            "managedFields": managed},
        "spec": {"containers": [{"name": "c", "resources": resources}], "nodeName": "n"},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    })
}

/// The peak of resident memory of a process that audits this file and nothing else.
fn peak_bytes(file: &Path) -> u64 {
    let test = std::env::current_exe().expect("this test's binary");
    let output = Command::new(test)
        .args(["--exact", "child_measures_its_memory", "--nocapture"])
        .env(CHILD, file)
        .output()
        .expect("this test's binary runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find(|l| l.starts_with("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no peak in {text}")) * 1024
}

/// Does nothing unless started by the test above.
#[test]
fn child_measures_its_memory() {
    let Some(file) = std::env::var_os(CHILD) else { return };
    let audit = audit(Path::new(&file));
    assert!(audit.overall.jobs > 0);
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find(|l| l.starts_with("VmHWM:")).expect("a peak");
    // The harness prints on this line, too, without a line break.
    println!("\n{peak}");
}
