//! The command as a person runs it, on loads small enough to take no time.

use clap::Parser;
use serde_json::Value;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: saccade_plan::Args,
}

fn plan(flags: &[&str]) -> anyhow::Result<(Value, String)> {
    let folder = tempfile::tempdir()?;
    let (json, html) = (folder.path().join("plan.json"), folder.path().join("plan.html"));
    let cli = Cli::try_parse_from(
        ["plan", "--duration", "20"]
            .into_iter()
            .chain(flags.iter().copied())
            .map(std::ffi::OsString::from)
            .chain(["--json".into(), json.clone().into(), "--html".into(), html.clone().into()]),
    )?;
    saccade_plan::run(&cli.args)?;
    let text = std::fs::read_to_string(json)?;
    Ok((serde_json::from_str(&text)?, std::fs::read_to_string(html)?))
}

/// Without what depends on this machine.
fn without_speed(mut results: Value) -> Value {
    for row in results["rows"].as_array_mut().into_iter().flatten() {
        row["speedup"].take();
    }
    results
}

const SMALL: [&str; 6] = ["--model", "Llama-3-8B", "--device", "L40S", "--rate", "2,12"];

#[test]
fn a_plan_says_that_it_is_simulated_and_counts_alike_everywhere() {
    let (results, page) = plan(&SMALL).expect("a plan");
    assert_eq!(results["simulated"], true);
    assert!(page.contains("Simulated"));
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let share = |name: &str| row["attainment"][name].as_f64().expect(name);
        assert!(share("goodput") <= share("ttft").min(share("tbt_mean")) + 1e-12);
        assert!(row["ttft"]["p50"].as_f64() <= row["ttft"]["p99"].as_f64());
        assert_eq!(row["unfinished"], 0);
    }
    assert!(rows[0]["ttft"]["p99"].as_f64() <= rows[1]["ttft"]["p99"].as_f64());
}

#[test]
fn the_same_seed_gives_the_same_plan_and_another_one_another() {
    let first = without_speed(plan(&SMALL).expect("a plan").0);
    assert_eq!(first, without_speed(plan(&SMALL).expect("a plan").0));
    let other = plan(&[&SMALL[..], &["--seed", "2"]].concat()).expect("a plan").0;
    assert_ne!(first["rows"], without_speed(other)["rows"]);
}

#[test]
fn every_policy_serves_everyone_to_the_end() {
    let flags = ["--policy", "fcfs,wf,sf,lvf,goodput", "--kv-offloading-size", "20"];
    let (results, _) = plan(&[&SMALL[..], &flags].concat()).expect("a plan");
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["unfinished"] == 0));
}

#[test]
fn who_finds_no_slot_is_refused_and_counts_as_missed() {
    let flags = ["--rate", "40", "--ring-slots", "64", "--policy", "fcfs,goodput"];
    let (results, _) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
    assert_eq!(results["slots"], 64);
    for row in results["rows"].as_array().expect("rows") {
        let refused = row["refused"].as_f64().expect("refused");
        let share = refused / row["requests"].as_f64().expect("requests");
        let attained = |name: &str| row["attainment"][name].as_f64().expect("a share");
        assert!(share > 0.5, "{share}");
        assert_eq!(row["unfinished"], 0);
        assert!(attained("goodput") <= attained("ttft") && attained("ttft") <= 1.0 - share + 1e-12);
        // 64 at once are few: whoever was taken keeps its TBT.
        assert_eq!(attained("tbt_mean"), 1.0);
    }
}

#[test]
fn the_capacity_keeps_the_tbt_target() {
    let capacity = |tbt: &str| {
        let flags = ["--rate", "1x", "--slo-tbt", tbt];
        let (results, _) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
        let c = &results["capacity"];
        assert_eq!(c["rps"], results["capacity_rps"]);
        let of = |name: &str| c[name].as_f64();
        (of("rps").expect("rps"), of("flood_rps").expect("flood_rps"), of("num_seqs"))
    };
    // A step of this model is never below 23 ms on this device.
    let (unbound, flood, seqs) = capacity("10s");
    assert_eq!((unbound, seqs), (flood, Some(1024.0)));
    let (bound, flood, seqs) = capacity("40ms");
    assert!(bound < 0.95 * flood, "{bound} of {flood}");
    assert!(seqs.is_some_and(|n| (8.0..512.0).contains(&n)), "{seqs:?}");
    let (nobody, flood, seqs) = capacity("10ms");
    assert_eq!((nobody, seqs), (flood, None));
}

#[test]
fn a_host_on_the_path_costs_time_between_tokens() {
    let tpot = |flags: &[&str]| {
        let (results, _) = plan(&[&SMALL[..4], &["--rate", "2"], flags].concat()).expect("a plan");
        results["rows"][0]["tpot"]["mean"].as_f64().expect("tpot")
    };
    let (device, host) = (tpot(&[]), tpot(&["--scheduler", "host", "--host-step-us", "5000"]));
    assert!(host > device + 0.0045, "{host} against {device}");
    let stalls = ["--scheduler", "host", "--host-stall-odds", "0.1", "--host-stall-ms", "50"];
    assert!(tpot(&stalls) > device + 0.006);
}

#[test]
fn more_load_needs_more_devices() {
    let devices = |rate: &str| {
        let flags = ["--find-devices", "--rate", rate, "--slo-ttft", "1s"];
        let (results, _) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
        results["fleets"][0]["devices"].as_u64().expect("devices")
    };
    let (few, many) = (devices("2"), devices("40"));
    assert!(few < many, "{few} and {many}");
}

#[test]
fn flags_out_of_bounds_are_named() {
    for (flags, named) in [
        (vec!["--device", "B9000"], "GH200"),
        (vec!["--model", "no-such-folder"], "Llama-3-8B"),
        (vec!["--model", "Llama-3-70B", "--device", "L40S"], "KV"),
        (vec!["--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
        (vec!["--kv-offloading-size=-1"], "kv-offloading-size"),
        (vec!["--rate", "0"], "rate"),
        (vec!["--block-size", "17"], "block_size"),
        (vec!["--ring-slots", "33"], "num_slots"),
        (vec!["--ring-slots", "8192"], "num_slots"),
    ] {
        let error = format!("{:#}", plan(&flags).expect_err("out of bounds"));
        assert!(error.contains(named), "{flags:?}: {error}");
    }
}
