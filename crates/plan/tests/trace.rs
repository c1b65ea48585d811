//! `saccade plan --trace` on excerpts of recorded traces (traces/README.md).

mod common;

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use common::{plan, without_speed};

const REQUESTS: usize = 40;
const BLOCK_SIZE: u64 = 16;

fn traces(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

fn planned(trace: &Path, flags: &[&str]) -> anyhow::Result<(Value, String)> {
    let trace = trace.to_str().expect("a path in UTF-8");
    let machine = ["--model", "Llama-3-8B", "--device", "H100", "--trace", trace];
    plan(&[&machine[..], flags].concat())
}

fn replay(trace: &Path, flags: &[&str]) -> anyhow::Result<Value> {
    Ok(planned(trace, flags)?.0)
}

fn mooncake(flags: &[&str]) -> Value {
    replay(&traces("mooncake.jsonl"), flags).expect("a plan")
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name} in {row}"))
}

fn lines() -> Vec<Value> {
    let text = std::fs::read_to_string(traces("mooncake.jsonl")).expect("the excerpt");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Of an endless cache, from the file alone: the blocks of a prompt up to the first new one, in
/// whole KV blocks, its last token left out.
fn cached_at_best() -> u64 {
    let mut seen = HashSet::new();
    let cached = lines().into_iter().map(|line| {
        let ids: Vec<u64> =
            line["hash_ids"].as_array().expect("ids").iter().filter_map(Value::as_u64).collect();
        let known = ids.iter().take_while(|id| seen.contains(*id)).count() as u64 * 512;
        seen.extend(ids);
        known.min(number(&line, "input_length") - 1) / BLOCK_SIZE * BLOCK_SIZE
    });
    cached.sum()
}

#[test]
fn an_ample_cache_finds_what_the_ids_say_and_computes_the_rest() {
    let (results, page) = planned(&traces("mooncake.jsonl"), &[]).expect("a plan");
    assert!(page.contains("Cached %"));
    let row = &results["rows"][0];
    let prompts: u64 = lines().iter().map(|line| number(line, "input_length")).sum();
    let best = cached_at_best();
    assert!(best > 0);
    assert_eq!(results["prefix_caching"], true);
    assert_eq!(row["requests"], REQUESTS);
    assert_eq!(row["unfinished"], 0);
    assert_eq!(number(row, "prefix_query_tokens"), prompts);
    assert_eq!(number(row, "prefix_hit_tokens"), best);
    assert_eq!(number(row, "prefill_tokens"), prompts - best);
    let rate = row["prefix_hit_rate"].as_f64().expect("a rate");
    assert!((rate - best as f64 / prompts as f64).abs() < 1e-9);
}

#[test]
fn without_prefix_caching_every_prompt_is_computed() {
    let results = mooncake(&["--no-enable-prefix-caching"]);
    let row = &results["rows"][0];
    let prompts: u64 = lines().iter().map(|line| number(line, "input_length")).sum();
    assert_eq!(results["prefix_caching"], false);
    assert_eq!((number(row, "prefix_hit_tokens"), number(row, "prefill_tokens")), (0, prompts));
    // Of two flags the last one counts.
    let again = mooncake(&["--no-enable-prefix-caching", "--enable-prefix-caching"]);
    assert!(number(&again["rows"][0], "prefix_hit_tokens") > 0);
}

#[test]
fn host_memory_finds_what_a_small_device_lost() {
    let small = ["--kv-cache-memory-bytes", "5G", "--request-rate", "0.2"];
    let hits = |flags: &[&str]| {
        let results = mooncake(&[&small[..], flags].concat());
        number(&results["rows"][0], "prefix_hit_tokens")
    };
    let (alone, backed) = (hits(&[]), hits(&["--kv-offloading-size", "200"]));
    // At its small size the device loses most of what the excerpt asks for again.
    let best = cached_at_best();
    assert!(alone < best / 2 && backed > best * 9 / 10 && backed <= best, "{alone}, {backed}");
}

#[test]
fn a_trace_without_ids_shares_nothing() {
    let results = replay(&traces("azure.csv"), &[]).expect("a plan");
    let row = &results["rows"][0];
    let text = std::fs::read_to_string(traces("azure.csv")).expect("the excerpt");
    let inputs = text.lines().skip(1).filter_map(|line| line.split(',').nth(1)?.parse().ok());
    let prompts: u64 = inputs.map(|input: u64| input).sum();
    assert_eq!(row["requests"], REQUESTS);
    assert_eq!(number(row, "prefix_query_tokens"), prompts);
    assert_eq!((number(row, "prefix_hit_tokens"), number(row, "prefill_tokens")), (0, prompts));
}

#[test]
fn a_rate_changes_the_speed_and_a_duration_the_length() {
    let arrivals = |results: &Value, row: usize| {
        let row = &results["rows"][row];
        let seconds = row["arrivals_s"].as_f64().expect("seconds");
        (row["rate_rps"].as_f64().expect("a rate"), seconds, number(row, "requests"))
    };
    let own = mooncake(&[]);
    let (rate, seconds, requests) = arrivals(&own, 0);
    // 40 requests with 39 gaps.
    let file = lines();
    let at = |i: usize| number(&file[i], "timestamp") as f64 / 1e3;
    assert!((rate - 39.0 / (at(39) - at(0))).abs() < 1e-9, "{rate}");
    assert!((seconds - requests as f64 / rate).abs() < 1e-9);
    let own_rate = own["workload"]["rate_rps"].as_f64().expect("a rate");
    assert_eq!((own_rate, requests), (rate, 40));

    let scaled = mooncake(&["--request-rate", "1,0.5x"]);
    assert_eq!(arrivals(&scaled, 0), (1.0, 40.0, 40));
    let capacity = scaled["capacity_rps"].as_f64().expect("a capacity");
    assert!((arrivals(&scaled, 1).0 - capacity / 2.0).abs() < 1e-9);

    let cut = mooncake(&["--request-rate", "1", "--duration", "20"]);
    let (_, seconds, some) = arrivals(&cut, 0);
    let scale = (at(39) - at(0)) / 39.0;
    let expected = (0..REQUESTS).filter(|i| (at(*i) - at(0)) / scale < 20.0).count() as u64;
    assert_eq!((seconds, some), (20.0, expected));
    assert!(some < 40);
}

#[test]
fn devices_dealt_in_turn_share_less_than_one() {
    let flags = ["--find-devices", "--request-rate", "3x", "--slo-ttft-ms", "60000"];
    let results = mooncake(&flags);
    let fleet = &results["fleets"][0];
    assert!(number(fleet, "devices") >= 3);
    let hits = number(&fleet["outcome"], "prefix_hit_tokens");
    assert!(hits < cached_at_best(), "{hits}");
}

#[test]
fn a_gzipped_trace_is_the_same_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["mooncake.jsonl", "azure.csv"] {
        let path = folder.path().join("trace");
        let file = std::fs::File::create(&path).expect("a file");
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        packed.write_all(&std::fs::read(traces(name)).expect("the excerpt")).expect("written");
        packed.finish().expect("written");
        let rows = |path: &Path| without_speed(replay(path, &[]).expect("a plan"))["rows"].clone();
        assert!(rows(&path) == rows(&traces(name)), "{name}");
    }
}

#[test]
fn bad_traces_and_flags_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |text: &str, flags: &[&str]| {
        let path = folder.path().join("bad.trace");
        std::fs::write(&path, text).expect("a file");
        format!("{:#}", replay(&path, flags).expect_err("a bad trace"))
    };
    let line = r#"{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}"#;
    let negative = refused(&format!("{line}\n{}", line.replace(": 9", ": -9")), &[]);
    for part in ["bad.trace", "line 2", "input_length is -9"] {
        assert!(negative.contains(part), "{negative}");
    }
    let at_once = refused(&format!("{line}\n{line}\n"), &[]);
    assert!(at_once.contains("bad.trace") && at_once.contains("at one time"), "{at_once}");
    let later = line.replace(": 0", ": 5000");
    let good = format!("{line}\n{later}\n");
    let small = refused(&good.replace(": 2", ": 3000"), &["--kv-cache-memory-bytes", "64M"]);
    assert!(small.contains("line 1") && small.contains("KV memory"), "{small}");
    let late = refused(&good, &["--duration", "0"]);
    assert!(late.contains("--duration"), "{late}");
    for flags in [
        ["--workload", "lmsys"],
        ["--input-len", "9"],
        ["--output-len", "9"],
        ["--burstiness", "2"],
        ["--dataset-path", "x"],
    ] {
        let error = refused(&good, &flags);
        assert!(error.contains("--trace") && error.contains(flags[0]), "{error}");
    }
    let missing = replay(&folder.path().join("none"), &[]).expect_err("no file");
    assert!(format!("{missing:#}").contains("none"));
}
