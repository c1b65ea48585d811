//! What the metrics say about the host: run-queue waits by plane, waits of the device, KV bytes.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Harness, VOCAB_SIZE};
use saccade_host::{Process, Root};
use saccade_ring::testing::FakeConfig;
use serde_json::json;

const RUN_FRONTEND: &str = "saccade:run_seconds_total{model_name=\"tiny\",plane=\"frontend\"}";
const RUN_DEVICE: &str = "saccade:run_seconds_total{model_name=\"tiny\",plane=\"device\"}";
const WAIT_FRONTEND: &str =
    "saccade:run_queue_wait_seconds_total{model_name=\"tiny\",plane=\"frontend\"}";
const WAIT_DEVICE: &str =
    "saccade:run_queue_wait_seconds_total{model_name=\"tiny\",plane=\"device\"}";

/// This process, in which the fake device runs too.
fn own_process() -> (u32, u64) {
    let pid = std::process::id();
    (pid, Process::read(&Root::default(), pid).unwrap().start_ticks)
}

fn info(plane: &str, pid: u32) -> String {
    format!("saccade:plane_info{{model_name=\"tiny\",pid=\"{pid}\",plane=\"{plane}\"}}")
}

#[test]
fn time_on_cores_and_in_run_queues_is_told_by_plane() {
    let (pid, start_ticks) = own_process();
    let device = FakeConfig { process: (pid, start_ticks), ..FakeConfig::default() };
    let h = Harness::with(|_| {}, device);
    let (run, wait) = (h.metric(RUN_FRONTEND), h.metric(WAIT_FRONTEND));
    assert!(run > 0.0 && wait >= 0.0, "{run} {wait}");
    // Both planes are this process, whose threads keep running between two readings.
    assert!(h.metric(RUN_DEVICE) >= run);
    assert!(h.metric(WAIT_DEVICE) >= wait);
    assert_eq!(h.metric(&info("frontend", pid)), 1.0);
    assert_eq!(h.metric(&info("device", pid)), 1.0);
    h.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 5}));
    assert!(h.metric(RUN_FRONTEND) > run);
    assert!(h.metric(WAIT_FRONTEND) >= wait);
}

#[test]
fn a_device_of_another_machine_is_not_looked_for_here() {
    let (pid, start_ticks) = own_process();
    for process in [(0, 0), (pid, start_ticks + 1), (u32::MAX, start_ticks)] {
        let h = Harness::with(|_| {}, FakeConfig { process, ..FakeConfig::default() });
        assert!(h.metric(RUN_FRONTEND) > 0.0);
        for series in [RUN_DEVICE, WAIT_DEVICE, &info("device", process.0)] {
            assert_eq!(h.find_metric(series), None, "{series} of {process:?}");
        }
    }
}

#[test]
fn a_device_that_is_gone_has_no_run_queue() {
    let mut h =
        Harness::with(|_| {}, FakeConfig { process: own_process(), ..FakeConfig::default() });
    assert!(h.find_metric(RUN_DEVICE).is_some());
    h.device.kill();
    h.wait_until("no series", |h| h.find_metric(RUN_DEVICE).is_none());
    assert!(h.find_metric(RUN_FRONTEND).is_some());
}

#[test]
fn waits_of_the_device_are_seconds() {
    let h = Harness::start();
    h.device.set_stats(|s| {
        s.step_ns = 7_000_000_000;
        s.host_wait_ns = 2_500_000_000;
        s.reader_wait_ns = 1_250_000_000;
    });
    h.wait_until("told", |h| h.metric("saccade:device_host_wait_seconds_total") > 0.0);
    assert_eq!(h.metric("saccade:device_step_seconds_total"), 7.0);
    assert_eq!(h.metric("saccade:device_host_wait_seconds_total"), 2.5);
    assert_eq!(h.metric("saccade:device_reader_wait_seconds_total"), 1.25);
    assert_eq!(h.metric("saccade:frontend_epoch"), 1.0);
}

#[test]
fn kv_bytes_are_told_by_source() {
    const COMPUTED: &str = "saccade:kv_bytes_total{model_name=\"tiny\",source=\"computed\"}";
    const RECOMPUTED: &str = "saccade:kv_bytes_total{model_name=\"tiny\",source=\"recomputed\"}";
    // Blocks of the fake device hold 16 tokens.
    let device = FakeConfig { kv_block_bytes: 1600, ..FakeConfig::default() };
    let mut h = Harness::with(|_| {}, device);
    h.device
        .set_stats(|s| (s.prefill_tokens, s.decode_tokens, s.recomputed_tokens) = (100, 20, 30));
    h.wait_until("told", |h| h.metric(COMPUTED) > 0.0);
    assert_eq!(h.metric(COMPUTED), 9000.0);
    assert_eq!(h.metric(RECOMPUTED), 3000.0);
    // The words are read one by one: recomputation is seen before the rows that it is part of.
    h.device.set_stats(|s| s.recomputed_tokens = 40);
    h.wait_until("told", |h| h.metric(RECOMPUTED) == 4000.0);
    assert_eq!(h.metric(COMPUTED), 9000.0);
    h.device.restart(FakeConfig { vocab_size: VOCAB_SIZE, ..device });
    h.wait_until("counted from zero", |h| h.metric(COMPUTED) == 0.0);
}

#[test]
fn copies_between_the_tiers_are_told_by_kind() {
    let of =
        |kind| format!("saccade:device_blocks_copied_total{{kind=\"{kind}\",model_name=\"tiny\"}}");
    let bytes = |way| {
        format!("vllm:kv_offload_total_bytes_total{{model_name=\"tiny\",transfer_type=\"{way}\"}}")
    };
    let device = FakeConfig { kv_block_bytes: 1000, num_host_blocks: 50, ..FakeConfig::default() };
    let h = Harness::with(|_| {}, device);
    h.device.set_stats(|s| {
        (s.blocks_down_eager, s.blocks_down_urgent, s.blocks_up) = (7, 2, 5);
        (s.rotations, s.num_rotated, s.host_blocks_used) = (3, 1, 10);
        s.copy_wait_ns = 1_500_000_000;
    });
    h.wait_until("told", |h| h.metric("saccade:device_rotations_total") == 3.0);
    assert_eq!(h.metric(&of("eager")), 7.0);
    assert_eq!(h.metric(&of("urgent")), 2.0);
    assert_eq!(h.metric(&of("up")), 5.0);
    assert_eq!(h.metric(&bytes("GPU_to_CPU")), 9000.0);
    assert_eq!(h.metric(&bytes("CPU_to_GPU")), 5000.0);
    assert_eq!(h.metric("saccade:device_rotated_requests"), 1.0);
    assert_eq!(h.metric("vllm:kv_offload_cpu_cache_usage_perc"), 0.2);
    assert_eq!(h.metric("saccade:device_copy_wait_seconds_total"), 1.5);
}

#[test]
fn blocks_without_memory_have_no_bytes() {
    let h = Harness::start();
    h.device.set_stats(|s| s.prefill_tokens = 100);
    h.wait_until("told", |h| h.metric("saccade:device_prefill_tokens_total") == 100.0);
    assert_eq!(h.find_metric("saccade:kv_bytes_total"), None);
}
