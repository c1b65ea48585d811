//! The whole way from recorded metrics to the screen, without a server and without a terminal.

use std::time::{Duration, Instant};

use clap::Parser;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::args::Args;
use crate::frame::Frame;
use crate::histogram::QuantileKind;
use crate::once;
use crate::probe::Probe;
use crate::prom::Scrape;
use crate::ui;
use crate::view::{Link, View};

const OURS: [&str; 3] = [
    include_str!("../tests/data/saccade-1.prom"),
    include_str!("../tests/data/saccade-2.prom"),
    // The device plane has restarted.
    include_str!("../tests/data/saccade-3.prom"),
];
const VLLM: [&str; 2] =
    [include_str!("../tests/data/vllm-1.prom"), include_str!("../tests/data/vllm-2.prom")];

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A view of a server that is not on this machine.
fn view_of(flags: &[&str]) -> View {
    let all = ["top", "--url", "http://gpu-7:8000"].iter().chain(flags);
    View::new(&Cli::try_parse_from(all).unwrap().args)
}

/// A view of recorded looks, two seconds apart.
fn seen(flags: &[&str], texts: &[&str]) -> View {
    let mut view = view_of(flags);
    let start = Instant::now();
    for (i, text) in texts.iter().enumerate() {
        let scrape = Scrape::parse(text);
        assert_eq!(scrape.skipped, 0);
        let at = start + Duration::from_secs(2 * i as u64);
        view.answered(Probe { at, scrape, ready: Some(true), version: Some("0.1.0".into()) });
    }
    view
}

fn frame(view: &View) -> &Frame {
    view.frame.as_ref().unwrap()
}

fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|canvas| ui::draw(canvas, view, true)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width.max(1)));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

fn assert_shows(screen: &[String], words: &[&str]) {
    for word in words {
        assert!(screen.iter().any(|l| l.contains(word)), "no `{word}` in\n{}", screen.join("\n"));
    }
}

fn close(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() <= 1e-6 * expected.abs().max(1.0))
}

#[test]
fn ours_becomes_rates_and_costs() {
    let view = seen(&[], &OURS[..2]);
    let f = frame(&view);
    assert_eq!(f.models, ["tiny"]);
    assert_eq!(f.window_s, 2.0);
    assert!(f.missing.is_empty(), "{:?}", f.missing);
    let names: Vec<&str> = f.planes.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["frontend", "device"]);
    for plane in &f.planes {
        assert_eq!((plane.up, plane.lives), (Some(true), Some(1)));
        assert!(plane.pid.is_some() && plane.local.is_none());
        assert!(plane.cores_used.is_some_and(|cores| cores > 0.0));
        assert!(plane.run_queue_share.is_some_and(|share| share > 0.0 && share < 1.0));
    }
    assert_eq!((f.requests.running, f.requests.waiting), (Some(3.0), Some(1.0)));
    assert!(close(f.requests.finished_per_s, 5.0));
    assert_eq!(f.requests.preemptions, Some(3.0));
    assert_eq!(f.slots["decode_processing"], 3.0);
    assert!(close(f.kv.used_share, 1720.0 / 4096.0));
    assert_eq!((f.kv.blocks, f.kv.block_size), (Some(4096), Some(16)));
    // 65536 bytes for 16 tokens: 700 recomputed tokens in 2 s.
    assert!(close(f.kv.bytes_per_s.get("recomputed").copied(), 700.0 * 4096.0 / 2.0));
    assert!(close(f.tokens.prompt_per_s, 25_000.0));
    // Ten whole requests of 90 tokens, and the beginning of three more.
    let tokens = f.tokens.generated_per_s.unwrap() * 2.0;
    assert!((900.0..1100.0).contains(&tokens), "{tokens}");
    assert!(close(f.host.device_wait_s_per_token, 0.03 / tokens));
    assert!(close(f.host.host_wait_share, 0.015));
    assert!(close(f.host.step_share, 0.425));
    assert!(close(f.host.steps_per_s, 500.0));
    assert!(f.host.tokenize_s_per_token.is_some_and(|s| s > 0.0 && s < 1e-3));
    assert!(f.host.detokenize_s_per_token.is_some_and(|s| s > 0.0 && s < 1e-3));
    assert_eq!(f.host.run_queue_wait_s_per_token.len(), 2);
    assert_eq!(f.latency.ttft.unwrap().count, 13.0);
    assert_eq!(f.latency.e2e.unwrap().count, 10.0);
    // Without targets of ours the server's own count.
    assert_eq!((f.attainment.ttft, f.attainment.tbt), (Some(1.0), Some(1.0)));
}

#[test]
fn a_plane_that_began_anew_counts_from_nothing() {
    let view = seen(&[], &OURS);
    let f = frame(&view);
    assert_eq!(f.planes[1].lives, Some(2));
    assert_eq!(f.window_s, 4.0);
    // The new device has done nothing of what the fake one was told to have done.
    assert_eq!(f.requests.preemptions, Some(3.0));
    assert!(close(f.host.steps_per_s, 250.0));
    assert_eq!(f.latency.e2e.unwrap().count, 12.0);
    let all = serde_json::to_string(f).unwrap();
    assert!(!all.contains('-') || !all.contains(":-"), "a negative number in {all}");
    // The server as a whole, too: the first recording comes after the last.
    let view = seen(&[], &[OURS[1], OURS[0]]);
    assert_eq!(frame(&view).latency.e2e.unwrap().count, 3.0);
    assert!(!serde_json::to_string(frame(&view)).unwrap().contains(":-"));
}

#[test]
fn targets_are_judged_by_the_histograms() {
    let view = seen(&["--slo-ttft-ms", "100", "--slo-tbt-ms", "50"], &VLLM);
    let f = frame(&view);
    // In the window: 20 + 50 within 0.1 s, of 70 + 75 + 15.
    assert!(close(f.attainment.ttft, 70.0 / 160.0));
    assert!(close(f.attainment.tbt, 33_000.0 / 42_700.0));
    assert_eq!(f.attainment.ttft_target_s, Some(0.1));
    assert_shows(
        &screen(&view, 80, 24),
        &["TTFT within 100 ms  43.8 %", "TBT within 50.0 ms  77.3 %"],
    );
}

#[test]
fn vllm_is_shown_as_far_as_it_tells() {
    let view = seen(&[], &VLLM);
    let f = frame(&view);
    assert_eq!(f.models, ["Qwen/Qwen3-8B"]);
    assert!(f.planes.is_empty() && f.slots.is_empty());
    assert!(close(f.kv.used_share, 0.931));
    assert_eq!(f.kv.blocks, Some(27_648));
    assert!(close(f.kv.prefix_hit_share, 0.75));
    assert!(close(f.tokens.generated_per_s, 20_500.0));
    assert!(close(f.requests.finished_per_s, 50.0));
    assert_eq!(f.latency.tbt.unwrap().p50.kind, QuantileKind::Estimate);
    assert_eq!(f.host.device_wait_s_per_token, None);
    for what in ["planes", "run queues", "device waits", "slots", "tokenization"] {
        assert!(f.missing.contains(&what), "{what}");
    }
    let screen = screen(&view, 80, 24);
    assert_shows(
        &screen,
        &["vLLM's metrics", "running 12  waiting 4", "not reported by this server"],
    );
    assert_shows(&screen, &["93.1 % of 27648 x 16", "tokens out 20.5k/s", "prefix hits 75.0 %"]);
}

#[test]
fn eighty_by_twenty_four_holds_everything() {
    let view = seen(&[], &OURS[..2]);
    let screen = screen(&view, 80, 24);
    assert_shows(&screen, &["gpu-7:8000", "tiny 0.1.0", "ready", "frontend", "device"]);
    assert_shows(&screen, &["requests and KV", "running 3  waiting 1", "slots: decode 3"]);
    assert_shows(
        &screen,
        &["42.0 % of 4096 x 16", "recomputed 1.37 MiB/s", "preempted 6 (+3)  steps 500/s"],
    );
    assert_shows(&screen, &["TTFT", "TBT", "E2E", "per token", "run queues"]);
    assert_shows(&screen, &["steps 42.5 %", "for host 1.50 %", "no work 5"]);
    assert_shows(&screen, &["TTFT p99", "TBT p99", "tokens", "host wait", "q quit"]);
}

/// What /metrics of a server with these buckets says of 1,000 gaps of 1.6 ms.
fn gaps(bounds_s: &[f64]) -> [String; 2] {
    let name = "vllm:inter_token_latency_seconds";
    let text = |count: u32| {
        let bucket = |le: &f64| {
            let cumulative = if *le >= 0.0016 { count } else { 0 };
            format!("{name}_bucket{{le=\"{le}\"}} {cumulative}\n")
        };
        let buckets: String = bounds_s.iter().map(bucket).collect();
        format!("{buckets}{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {count}\n")
    };
    [text(0), text(1000)]
}

#[test]
fn percentiles_say_as_much_as_the_buckets() {
    for (bounds_s, shown) in [
        (&[0.001, 0.0015, 0.002, 0.01][..], "TBT   1.75 ms  1.95 ms"),
        (&[0.001, 0.01], "TBT    1–10ms   1–10ms   1–10ms"),
        (&[0.01, 0.025], "TBT  ≤10.0 ms ≤10.0 ms ≤10.0 ms"),
    ] {
        let texts = gaps(bounds_s);
        let view = seen(&[], &[&texts[0], &texts[1]]);
        assert_shows(&screen(&view, 80, 24), &[shown]);
    }
}

#[test]
fn every_size_is_drawn() {
    let mut view = seen(&[], &OURS);
    let wide = screen(&view, 200, 60);
    assert_shows(&wide, &["frontend", "run queues", "q quit"]);
    view.help = true;
    for (width, height) in [(80, 24), (200, 60), (40, 10), (20, 3), (3, 1), (1, 40), (0, 0)] {
        screen(&view, width, height);
        screen(&view_of(&[]), width, height);
    }
    assert_shows(&screen(&view, 80, 24), &["pause and go on"]);
}

#[test]
fn a_server_that_is_gone_is_said_to_be() {
    let mut view = view_of(&[]);
    assert_shows(&screen(&view, 80, 24), &["asking http://gpu-7:8000"]);
    view.failed("Connection refused (os error 111)".into(), Duration::from_secs(2));
    assert_shows(&screen(&view, 80, 24), &["GONE", "no answer", "Connection refused"]);
    // What was seen last stays on the screen, and the first failure's time counts.
    let mut view = seen(&[], &OURS[..2]);
    view.failed("refused".into(), Duration::from_secs(1));
    let Link::Down { since, .. } = view.link else { panic!("{:?}", view.link) };
    view.failed("refused".into(), Duration::from_secs(2));
    assert!(matches!(view.link, Link::Down { since: s, .. } if s == since));
    assert_shows(&screen(&view, 100, 24), &["GONE", "retrying every 2.00 s", "running 3"]);
    // It is back, with new counts.
    let at = Instant::now() + Duration::from_secs(60);
    let scrape = Scrape::parse(OURS[0]);
    view.answered(Probe { at, scrape, ready: Some(false), version: None });
    assert_shows(&screen(&view, 100, 24), &["NOT READY"]);
    assert!(!serde_json::to_string(frame(&view)).unwrap().contains(":-"));
}

#[test]
fn a_pause_keeps_what_is_seen() {
    let mut view = seen(&[], &OURS[..1]);
    view.paused = true;
    let scrape = Scrape::parse(OURS[1]);
    view.answered(Probe { at: Instant::now(), scrape, ready: None, version: None });
    assert_eq!(frame(&view).requests.preemptions_total, Some(3.0));
    assert_shows(&screen(&view, 80, 24), &["PAUSED"]);
}

#[test]
fn tiers_and_lag_are_shown_by_name_when_they_exist() {
    let text = format!(
        "{}# TYPE saccade:kv_tier_blocks gauge\nsaccade:kv_tier_blocks{{tier=\"dram\",model_name=\"m\"}} 512\n\
         # TYPE saccade:vlt_max_seconds gauge\nsaccade:vlt_max_seconds 0.25\n\
         # TYPE saccade:fetch_tier_seconds histogram\nsaccade:fetch_tier_seconds_bucket{{le=\"1\"}} 3\n",
        OURS[1]
    );
    let view = seen(&[], &[OURS[0], &text]);
    let others: Vec<_> = frame(&view).others.keys().map(String::as_str).collect();
    assert_eq!(others, ["kv_tier_blocks{tier=dram}", "vlt_max_seconds"]);
    assert_shows(
        &screen(&view, 80, 24),
        &["tiers and lag", "kv_tier_blocks{tier=dram} 512", "q quit"],
    );
}

/// A recording with a fetch plane: what its counters have come to, and how it is.
fn with_store(text: &str, hits: u32, stores: u32, alive: u32, breaker: u32) -> String {
    let counter = |name: &str, labels: &str, value: u32| {
        format!("# TYPE {name} counter\n{name}{{model_name=\"m\"{labels}}} {value}\n")
    };
    let gauge = |name: &str, value: u32| format!("# TYPE {name} gauge\n{name} {value}\n");
    [
        text.to_owned(),
        counter("vllm:external_prefix_cache_queries_total", "", 2 * hits),
        counter("vllm:external_prefix_cache_hits_total", "", hits),
        counter("saccade:fetch_commands_total", ",op=\"load\",result=\"done\"", hits / 256),
        counter("saccade:fetch_commands_total", ",op=\"load\",result=\"late\"", 0),
        counter("saccade:fetch_commands_total", ",op=\"store\",result=\"full\"", stores),
        counter("saccade:fetch_loaded_bytes_total", "", 1024 * hits),
        counter("saccade:fetch_stored_bytes_total", "", 0),
        gauge("saccade:fetch_frames", 64),
        gauge("saccade:fetch_frames_used", 3),
        gauge("saccade:fetch_stores_waiting", 5),
        gauge("saccade:fetch_plane_alive", alive),
        gauge("saccade:fetch_breaker", breaker),
    ]
    .concat()
}

#[test]
fn a_prefix_store_has_a_panel() {
    let texts = [with_store(OURS[0], 256, 1, 1, 0), with_store(OURS[1], 2304, 4, 1, 0)];
    let view = seen(&[], &[&texts[0], &texts[1]]);
    let fetch = frame(&view).fetch.as_ref().unwrap();
    assert_eq!((fetch.frames, fetch.frames_used, fetch.alive), (64.0, Some(3.0), Some(true)));
    assert!(close(fetch.tokens_per_s, 1024.0) && close(fetch.hit_share, 0.5));
    assert!(close(fetch.loaded_bytes_per_s, 1024.0 * 1024.0));
    assert_eq!((fetch.loads.len(), fetch.loads["done"]), (1, 8.0));
    assert_eq!((fetch.stores.len(), fetch.stores["full"]), (1, 3.0));
    assert!(frame(&view).missing.is_empty());
    let shown = screen(&view, 100, 40);
    assert_shows(&shown, &["prefix store", "plane alive  store used", "3 of 64  waiting 5"]);
    assert_shows(&shown, &["tokens from it 1024/s  hits 50.0 %  loaded 1.00 MiB/s  stored 0 B/s"]);
    assert_shows(&shown, &["loads done 8  stores full 3"]);
    // On the smallest screen that holds all else, too.
    assert_shows(&screen(&view, 80, 24), &["prefix store", "running 3", "run queues", "q quit"]);
    assert!(once::json(&view).unwrap().contains("\"breaker\": \"closed\""));

    let dead = with_store(OURS[1], 2304, 4, 0, 1);
    let view = seen(&[], &[&texts[0], &dead]);
    assert_shows(&screen(&view, 80, 24), &["plane DEAD  store FAILED, rests"]);
}

#[test]
fn without_a_prefix_store_there_is_no_panel() {
    let none = "# TYPE saccade:fetch_frames gauge\nsaccade:fetch_frames 0\n";
    for texts in
        [[OURS[0].to_owned(), OURS[1].to_owned()], [OURS[0], OURS[1]].map(|t| format!("{t}{none}"))]
    {
        let view = seen(&[], &[&texts[0], &texts[1]]);
        assert!(frame(&view).fetch.is_none());
        assert!(!screen(&view, 100, 40).concat().contains("prefix store"));
    }
}

#[test]
fn strangers_and_noise_do_not_panic() {
    let view = seen(&[], &["go_goroutines 12\n", "go_goroutines 13\n"]);
    assert_shows(&screen(&view, 80, 24), &["no known metrics", "not reported by this server"]);
    let noise = "vllm:num_requests_running NaN\nvllm:kv_cache_usage_perc +Inf\nsaccade:slots{state=\"x\"} -1\n\
        vllm:time_to_first_token_seconds_bucket{le=\"oops\"} 1\nvllm:num_preemptions_total NaN\n";
    let view = seen(&[], &[noise, noise]);
    screen(&view, 80, 24);
    assert!(once::json(&view).unwrap().contains("\"schema\": 1"));
}

#[test]
fn text_and_json_hold_the_same() {
    let view = seen(&["--slo-tbt-ms", "20"], &OURS[..2]);
    let text = once::text(&view).unwrap();
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.contains("running 3  waiting 1") && !text.contains("q quit"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&once::json(&view).unwrap()).unwrap();
    assert_eq!(json["requests"]["running"], 3.0);
    assert_eq!(json["planes"][1]["name"], "device");
    assert_eq!(json["attainment"]["tbt_target_s"], 0.02);
    assert_eq!(json["kind"], "saccade");
}
