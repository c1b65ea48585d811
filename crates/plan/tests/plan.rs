//! The command as a person runs it, on loads small enough to take no time.

mod common;

use clap::Parser;
use serde_json::Value;

use common::{Cli, plan, without_speed, written};

const SMALL: [&str; 6] = ["--model", "Llama-3-8B", "--device", "L40S", "--request-rate", "2,12"];

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
    assert!(first == without_speed(plan(&SMALL).expect("a plan").0));
    let other = plan(&[&SMALL[..], &["--seed", "2"]].concat()).expect("a plan").0;
    assert!(first["rows"] != without_speed(other)["rows"]);
}

#[test]
fn every_policy_serves_every_request_to_the_end() {
    let flags = ["--scheduling-policy", "fcfs,wf,sf,lvf,goodput", "--kv-offloading-size", "20"];
    let (results, _) = plan(&[&SMALL[..], &flags].concat()).expect("a plan");
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["unfinished"] == 0));
}

#[test]
fn a_request_that_finds_no_slot_is_refused_and_counts_as_missed() {
    let policies = ["--scheduling-policy", "fcfs,goodput"];
    let flags = [&["--request-rate", "40", "--ring-slots", "64"][..], &policies].concat();
    let (results, _) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
    assert_eq!(results["slots"], 64);
    for row in results["rows"].as_array().expect("rows") {
        let refused = row["refused"].as_f64().expect("refused");
        let share = refused / row["requests"].as_f64().expect("requests");
        let attained = |name: &str| row["attainment"][name].as_f64().expect("a share");
        assert!(share > 0.5, "{share}");
        assert_eq!(row["unfinished"], 0);
        assert!(attained("goodput") <= attained("ttft") && attained("ttft") <= 1.0 - share + 1e-12);
        // 64 at once are few: all that were taken keep their TBT.
        assert_eq!(attained("tbt_mean"), 1.0);
    }
}

#[test]
fn the_capacity_keeps_the_tbt_target() {
    let capacity = |tbt_ms: &str| {
        let flags = ["--request-rate", "1x", "--slo-tpot-ms", tbt_ms];
        let (results, _) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
        let c = &results["capacity"];
        assert_eq!(c["rps"], results["capacity_rps"]);
        let of = |name: &str| c[name].as_f64();
        (of("rps").expect("rps"), of("flood_rps").expect("flood_rps"), of("num_seqs"))
    };
    // A step of this model is never below 23 ms on this device.
    let (unbound, flood, seqs) = capacity("10000");
    assert_eq!((unbound, seqs), (flood, Some(1024.0)));
    let (bound, flood, seqs) = capacity("40");
    assert!(bound < 0.95 * flood, "{bound} of {flood}");
    assert!(seqs.is_some_and(|n| (8.0..512.0).contains(&n)), "{seqs:?}");
    let (unmet, flood, seqs) = capacity("10");
    assert_eq!((unmet, seqs), (flood, None));
}

#[test]
fn a_host_on_the_path_costs_time_between_tokens() {
    let tpot = |flags: &[&str]| {
        let load = ["--request-rate", "2"];
        let (results, _) = plan(&[&SMALL[..4], &load, flags].concat()).expect("a plan");
        results["rows"][0]["tpot"]["mean"].as_f64().expect("tpot")
    };
    let (device, host) = (tpot(&[]), tpot(&["--scheduler", "host", "--host-step-us", "5000"]));
    assert!(host > device + 0.0045, "{host} against {device}");
    let stalls = ["--scheduler", "host", "--host-stall-odds", "0.1", "--host-stall-ms", "50"];
    assert!(tpot(&stalls) > device + 0.006);
}

#[test]
fn devices_are_found_that_can_serve_the_rate_and_one_less_cannot() {
    // In 20 s fewer devices than can serve the rate in the long run would meet most targets.
    let flags = ["--find-devices", "--request-rate", "0.5x,5x,5.5x"];
    let (results, page) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
    let capacity = results["capacity_rps"].as_f64().expect("capacity");
    let fleets = results["fleets"].as_array().expect("fleets");
    let devices = |i: usize| fleets[i]["devices"].as_u64().expect("devices");
    assert_eq!(devices(0), 1);
    assert!(fleets[0]["one_less"].is_null());
    assert!(devices(1) >= 5 && devices(2) >= 6, "{} and {}", devices(1), devices(2));
    for (i, fleet) in fleets.iter().enumerate() {
        let rate = fleet["rate_rps"].as_f64().expect("rate");
        assert!(devices(i) as f64 * capacity >= rate * (1.0 - 1e-9), "{fleet}");
        assert_eq!(fleet["outcome"]["queue"]["grows"], false);
    }
    let one_less = &fleets[2]["one_less"];
    assert_eq!(one_less["devices"].as_u64(), Some(devices(2) - 1));
    if devices(2) == 6 {
        assert_eq!(one_less["fails_by"], "capacity");
    }
    assert!(page.contains("fails by"));
}

#[test]
fn a_run_whose_queue_grows_is_not_steady() {
    let flags = ["--request-rate", "0.5x,3x", "--duration", "60"];
    let (results, page) = plan(&[&SMALL[..4], &flags].concat()).expect("a plan");
    let grows = |i: usize| results["rows"][i]["queue"]["grows"].as_bool();
    assert_eq!((grows(0), grows(1)), (Some(false), Some(true)));
    assert!(page.contains("Not steady"));
}

#[test]
fn the_page_from_the_json_is_the_page_that_the_run_wrote() {
    for flags in [&["--scheduling-policy", "fcfs,goodput"][..], &["--find-devices"]] {
        let (json, page) = written(&[&SMALL[..], flags].concat()).expect("a plan");
        assert!(saccade_plan::page_of_json(&json).expect("a result") == page);
        let results: Value = serde_json::from_str(&json).expect("JSON");
        let drawn_over_time = |row: &Value| row["over_time"]["at_s"].is_array();
        let rows = results["rows"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(rows.iter().all(|r| drawn_over_time(r) == (r["rate_rps"] == 12.0)), "{flags:?}");
        let folder = tempfile::tempdir().expect("a folder");
        let (result, drawn) = (folder.path().join("r.json"), folder.path().join("r.html"));
        std::fs::write(&result, &json).expect("a file");
        let words = ["plan".as_ref(), "page".as_ref(), result.as_os_str(), "--html".as_ref()];
        let words = words.into_iter().chain([drawn.as_os_str()]);
        saccade_plan::run(&Cli::try_parse_from(words).expect("flags").args).expect("a page");
        assert!(std::fs::read_to_string(drawn).expect("a page") == page);
    }
    for (json, named) in [
        ("no json", "saccade plan"),
        ("{}", "schema"),
        (r#"{"schema": "saccade-plan/3"}"#, "saccade-plan/3"),
        (r#"{"schema": "saccade-plan/4", "simulated": true}"#, "version"),
    ] {
        let error = format!("{:#}", saccade_plan::page_of_json(json).expect_err("no result"));
        assert!(error.contains(named), "{error}");
    }
    assert!(Cli::try_parse_from(["plan", "--seed", "2", "page", "r.json"]).is_err());
}

/// Settings that `saccade serve` has too have its names and reach the scheduler.
#[test]
fn settings_of_the_policy_change_the_plan() {
    // Memory for some fifty requests, and more that arrive.
    let memory = ["--kv-cache-memory-bytes", "4G", "--kv-offloading-size", "20"];
    let load = [&memory[..], &["--request-rate", "4x", "--slo-ttft-ms", "500"]].concat();
    let rows = |flags: &[&str]| {
        let (results, _) = plan(&[&SMALL[..4], &load, flags].concat()).expect("a plan");
        without_speed(results)["rows"].clone()
    };
    for (policy, flags) in [
        ("wf", ["--min-run-ms", "60000"]),
        ("goodput", ["--late-share", "2"]),
        ("sf", ["--max-wait-s", "1"]),
        ("lvf", ["--vlt-alpha", "0"]),
        ("lvf", ["--vlt-beta-f", "-50"]),
        ("lvf", ["--vlt-beta-b", "50"]),
    ] {
        let named = ["--scheduling-policy", policy];
        assert!(rows(&named) != rows(&[named, flags].concat()), "{policy} {flags:?}");
    }
}

/// A scheduler that looks for prefixes lets preempted requests find what they had computed.
#[test]
fn loads_that_share_nothing_are_planned_without_prefix_caching() {
    let load = ["--kv-cache-memory-bytes", "4G", "--request-rate", "8"];
    let of = |flags: &[&str]| {
        let (results, page) = plan(&[&SMALL[..4], &load, flags].concat()).expect("a plan");
        assert_eq!(page.contains("Cached %"), results["prefix_caching"] == true);
        without_speed(results)
    };
    let (unasked, off) = (of(&[]), of(&["--no-enable-prefix-caching"]));
    assert_eq!(unasked["prefix_caching"], false);
    assert!(unasked == off);
    let on = of(&["--enable-prefix-caching"]);
    assert_eq!(on["prefix_caching"], true);
    assert!(on["rows"] != off["rows"]);
}

#[test]
fn flags_out_of_bounds_are_named() {
    for (flags, named) in [
        (vec!["--device", "B9000"], "GH200"),
        (vec!["--model", "no-such-folder"], "Llama-3-8B"),
        (vec!["--model", "Llama-3-70B", "--device", "L40S"], "KV"),
        (vec!["--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
        (vec!["--kv-offloading-size=-1"], "kv-offloading-size"),
        (vec!["--request-rate", "0"], "--request-rate"),
        (vec!["--block-size", "17"], "block_size"),
        (vec!["--min-run-ms", "3600001"], "--min-run-ms"),
        (vec!["--late-share", "1"], "--late-share"),
        (vec!["--vlt-alpha", "101"], "--vlt-alpha"),
        (vec!["--slo-tpot-ms", "0"], "--slo-tpot-ms"),
        (vec!["--ring-slots", "33"], "num_slots"),
        (vec!["--ring-slots", "8192"], "num_slots"),
    ] {
        let error = format!("{:#}", plan(&flags).expect_err("out of bounds"));
        assert!(error.contains(named), "{flags:?}: {error}");
    }
}
