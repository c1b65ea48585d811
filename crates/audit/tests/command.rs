//! The command as people use it: exit codes, printed tables, JSON, the page, and inputs that mean
//! harm.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use proptest::prelude::*;
use saccade_audit::{Args, collect, run};
use saccade_report::Report;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn args(flags: &[&str]) -> Args {
    Command::parse_from([&["audit"], flags].concat()).args
}

fn slurm(jobs: &[(u64, u64)]) -> String {
    let mut text = "JobID|Partition|AllocTRES|ElapsedRaw\n".to_owned();
    for (i, (cores, gpus)) in jobs.iter().enumerate() {
        writeln!(text, "{i}|gpu|cpu={cores},gres/gpu:h100={gpus},gres/gpu={gpus}|3600")
            .expect("memory");
    }
    text
}

fn exit_of(text: &str, flags: &[&str]) -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.txt");
    std::fs::write(&file, text).expect("a file");
    run(&args(&[&[file.to_str().expect("a path")], flags].concat())).expect("no usage error")
}

#[test]
fn the_exit_code_is_the_verdict() {
    let code = |n: u8| format!("{:?}", ExitCode::from(n));
    let exit = |jobs: &[(u64, u64)], flags: &[&str]| format!("{:?}", exit_of(&slurm(jobs), flags));
    assert_eq!(exit(&[(32, 4), (8, 1)], &[]), code(0));
    assert_eq!(exit(&[(8, 4), (8, 1)], &[]), code(1));
    assert_eq!(exit(&[(4, 4), (8, 1)], &[]), code(4));
    assert_eq!(exit(&[(4, 4), (8, 1)], &["--allow", "0.9"]), code(0));
    assert_eq!(exit(&[], &[]), code(3));
    assert_eq!(format!("{:?}", exit_of("JobID|User\n", &[])), code(3));
    assert_eq!(format!("{:?}", exit_of(r#"{"items": []}"#, &[])), code(3));
}

#[test]
fn the_page_is_written_and_holds_the_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("audit.html");
    let page_name = page.to_str().expect("a path");
    exit_of(&slurm(&[(4, 4), (16, 2), (64, 8)]), &["--html", page_name]);
    let html = std::fs::read_to_string(&page).expect("a page");
    for part in ["<svg", "Cores per GPU, weighted by GPU hours", "saccade.audit/1", "h100"] {
        assert!(html.contains(part), "{part}");
    }
    let hostile =
        "JobID|Partition|AllocTRES|ElapsedRaw\n1|<script>x</script>|cpu=4,gres/gpu:<img>=2|60\n";
    exit_of(hostile, &["--html", page_name]);
    let html = std::fs::read_to_string(&page).expect("a page");
    let own = Report::new("").data("a", &1).expect("a number").to_html();
    let scripts = |text: &str| text.matches("<script").count();
    assert_eq!(scripts(&html), scripts(&own), "only the page's own scripts");
    assert!(!html.contains("<img>"));
}

#[test]
fn nodes_name_the_gpus_of_pods() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path").to_owned()
    };
    let labels = r#"{"nvidia.com/gpu.product": "NVIDIA-L4"}"#;
    let node = format!(r#"{{"kind":"Node","metadata":{{"name":"n1","labels":{labels}}}}}"#);
    let nodes = write("nodes.json", &format!(r#"{{"items":[{node}]}}"#));
    let pod = r#"{"kind":"Pod","metadata":{"namespace":"a"},"spec":{"nodeName":"n1","containers":
        [{"resources":{"requests":{"cpu":"4","nvidia.com/gpu":"1"}}}]},
        "status":{"phase":"Running","startTime":"2026-03-01T00:00:00Z"}}"#;
    let pods = write("pods.json", &format!(r#"{{"items":[{pod}]}}"#));
    let flags = [pods.as_str(), "--nodes", &nodes, "--at", "2026-03-01T02:00:00Z"];
    let (tally, _) = collect(&args(&flags)).expect("readable");
    let group = &tally.models["nvidia-l4"];
    assert_eq!(group.distribution.total(), 2 * 3600 * 7);
    let missing = folder.path().join("none.json").display().to_string();
    assert!(collect(&args(&[&pods, "--nodes", &missing])).is_err());
}

/// Counts rows of `bytes` under every format; only a message, never a panic.
fn count_anything(bytes: &[u8], folder: &Path) {
    let file = folder.join("input");
    std::fs::write(&file, bytes).expect("a file");
    let file = file.to_str().expect("a path");
    for format in ["auto", "slurm", "kubernetes"] {
        if let Ok((tally, _)) = collect(&args(&[file, "--format", format])) {
            let sums: u64 = tally.skipped.values().chain(tally.rejected.values()).sum();
            assert_eq!(tally.rows, tally.overall.distribution.jobs() + sums, "a row was lost");
        }
    }
}

/// Pieces that mean something to the parsers, in any order.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "JobID|AllocTRES|ElapsedRaw\n",
        "1|cpu=4,gres/gpu:a100=2|60\n",
        "|",
        "cpu=18446744073709551615,",
        "gres/gpu=1000000,gres/gpu:x=1000000",
        "1-00:00:00",
        "\n",
        "\u{0}",
        "\u{1f}\u{8b}",
        r#"{"items":["#,
        r#"{"kind":"Pod","spec":{"containers":[{"resources":{"requests":{"cpu":"4","nvidia.com/gpu":"1"}}}]},"#,
        r#""status":{"phase":"Running","startTime":"2026-01-01T00:00:00Z"}}"#,
        r#""metadata":{"labels":null},"#,
        "{}",
        "[[[[",
        "]",
        "}",
        ",",
        "1e999",
        "null",
    ]);
    let known = known.prop_map(|text| text.as_bytes().to_vec());
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop_oneof![4 => known, 1 => noise], 0..30).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_input_panics_or_loses_a_row(bytes in pieces()) {
        let folder = tempfile::tempdir().expect("a folder");
        count_anything(&bytes, folder.path());
        // As compressed data, too, cut short or not.
        for magic in [&[0x1f, 0x8b, 8, 0][..], &[0x28, 0xb5, 0x2f, 0xfd][..]] {
            count_anything(&[magic, &bytes].concat(), folder.path());
        }
    }
}

#[test]
fn deep_nesting_and_endless_strings_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    count_anything("[".repeat(1 << 18).as_bytes(), folder.path());
    let deep = format!(r#"{{"items":[{{"kind":"Pod","spec":{}"#, r#"{"a":"#.repeat(1 << 18));
    count_anything(deep.as_bytes(), folder.path());
    let long = format!("{{\n\"items\":[{{\"kind\":\"{}\"}}]}}", "x".repeat(17 << 20));
    count_anything(long.as_bytes(), folder.path());
}
