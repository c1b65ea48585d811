//! From series to a [`Frame`].

use std::collections::BTreeMap;

use crate::frame::{
    Attainment, Breaker, Fetch, Frame, Host, Kind, Kv, Latencies, Latency, Plane, Requests, Tokens,
};
use crate::histogram::Histogram;
use crate::names;
use crate::prom::Scrape;
use crate::window::{Increase, Window};

/// Version of the object that `--json` prints.
const SCHEMA: u32 = 1;
/// Series shown by their names, at most.
const MAX_OTHERS: usize = 64;

/// What the flags say of the view.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What is watched.
    pub url: String,
    /// Target of the time to the first token, seconds.
    pub slo_ttft_s: Option<f64>,
    /// Target of the time between two tokens, seconds.
    pub slo_tbt_s: Option<f64>,
}

/// The view of a window; `None` before the first look. What this machine knows is added by others.
pub fn frame(settings: &Settings, window: &Window) -> Option<Frame> {
    let probe = window.last()?;
    let scrape = &probe.scrape;
    let kind = kind(scrape);
    let total = window.total();
    Some(Frame {
        schema: SCHEMA,
        url: settings.url.clone(),
        kind,
        models: models(scrape),
        version: probe.version.clone(),
        ready: probe.ready,
        window_s: total.seconds,
        planes: planes(scrape, &total),
        requests: requests(scrape, &total),
        slots: scrape.by_label(names::SLOTS, "state"),
        kv: kv(scrape, &total),
        fetch: fetch(scrape, &total),
        tokens: tokens(kind, &total),
        latency: Latencies {
            ttft: total.histogram(names::TTFT).and_then(latency),
            tbt: total.histogram(names::TBT).and_then(latency),
            e2e: total.histogram(names::E2E).and_then(latency),
        },
        attainment: attainment(settings, &total),
        host: host(kind, &total),
        others: others(scrape),
        missing: missing(scrape),
    })
}

fn kind(scrape: &Scrape) -> Kind {
    let has = |prefix: &str| scrape.names().any(|name| name.starts_with(prefix));
    match (has("saccade:"), has("vllm:")) {
        (true, _) => Kind::Saccade,
        (_, true) => Kind::Vllm,
        _ => Kind::Unknown,
    }
}

/// First look at names that every server of these kinds has.
fn models(scrape: &Scrape) -> Vec<String> {
    scrape.by_label(names::RUNNING, "model_name").into_keys().collect()
}

fn planes(scrape: &Scrape, total: &Increase) -> Vec<Plane> {
    let lives = |name| scrape.sum(name).map(|lives| lives as u64);
    let ready = scrape.sum(names::DEVICE_READY).map(|ready| ready > 0.0);
    let all = [
        ("frontend", Some(true), lives(names::FRONTEND_EPOCH)),
        ("device", ready, lives(names::DEVICE_EPOCH)),
    ];
    let told = all.into_iter().filter(|(_, _, lives)| lives.is_some());
    told.map(|(name, up, lives)| plane(name, up, lives, scrape, total)).collect()
}

fn plane(
    name: &str,
    up: Option<bool>,
    lives: Option<u64>,
    scrape: &Scrape,
    total: &Increase,
) -> Plane {
    let info = scrape.series(names::PLANE_INFO).iter();
    let pid = info
        .filter(|s| s.labels.get("plane").is_some_and(|p| p == name))
        .find_map(|s| s.labels.get("pid")?.parse().ok());
    let run_s = total.counter_where(names::RUN_S, "plane", name);
    let wait_s = total.counter_where(names::RUN_QUEUE_WAIT_S, "plane", name);
    let share = |wait_s: f64, run_s: f64| (run_s + wait_s > 0.0).then(|| wait_s / (run_s + wait_s));
    Plane {
        name: name.to_owned(),
        pid,
        up,
        lives,
        cores_used: run_s.and_then(|run_s| total.per_second(run_s)),
        run_queue_share: wait_s.zip(run_s).and_then(|(wait_s, run_s)| share(wait_s, run_s)),
        local: None,
    }
}

fn requests(scrape: &Scrape, total: &Increase) -> Requests {
    Requests {
        running: scrape.sum(names::RUNNING),
        waiting: scrape.sum(names::WAITING),
        paused: scrape.sum(names::PAUSED),
        stalled: scrape.sum(names::STALLED),
        in_flight: scrape.sum(names::IN_FLIGHT),
        tokenizer_queue: scrape.sum(names::TOKENIZER_QUEUE),
        finished_per_s: total.rate(names::FINISHED),
        preemptions: total.counter(names::PREEMPTIONS),
        preemptions_total: scrape.sum(names::PREEMPTIONS),
    }
}

fn kv(scrape: &Scrape, total: &Increase) -> Kv {
    let number = |label| scrape.label(names::CACHE_CONFIG, label)?.parse().ok();
    let bytes = total.counter_by(names::KV_BYTES, "source").into_iter();
    let queries = total.counter(names::PREFIX_QUERIES).filter(|queries| *queries > 0.0);
    Kv {
        used_share: names::KV_USAGE.iter().find_map(|name| scrape.mean(name)),
        blocks: number("num_gpu_blocks"),
        block_size: number("block_size"),
        bytes_per_s: bytes.filter_map(|(k, v)| Some((k, total.per_second(v)?))).collect(),
        prefix_hit_share: queries.zip(total.counter(names::PREFIX_HITS)).map(|(q, hits)| hits / q),
    }
}

/// None where no chunk can be on its way: such a server has no store.
fn fetch(scrape: &Scrape, total: &Increase) -> Option<Fetch> {
    let frames = scrape.sum(names::FETCH_FRAMES).filter(|frames| *frames > 0.0)?;
    let breaker = scrape.sum(names::FETCH_BREAKER).and_then(|state| match state as u32 {
        0 => Some(Breaker::Closed),
        1 => Some(Breaker::Open),
        2 => Some(Breaker::Probing),
        _ => None,
    });
    let queries = total.counter(names::EXTERNAL_QUERIES).filter(|queries| *queries > 0.0);
    let results = |op| {
        let ended = total.counter_by_where(names::FETCH_COMMANDS, "result", ("op", op));
        ended.into_iter().filter(|(_, count)| *count > 0.0).collect()
    };
    Some(Fetch {
        alive: scrape.sum(names::FETCH_ALIVE).map(|alive| alive > 0.0),
        breaker,
        frames,
        frames_used: scrape.sum(names::FETCH_FRAMES_USED),
        stores_waiting: scrape.sum(names::FETCH_WAITING),
        tokens_per_s: total.rate(names::EXTERNAL_HITS),
        hit_share: queries.zip(total.counter(names::EXTERNAL_HITS)).map(|(q, hits)| hits / q),
        loaded_bytes_per_s: total.rate(names::FETCH_LOADED_BYTES),
        stored_bytes_per_s: total.rate(names::FETCH_STORED_BYTES),
        loads: results("load"),
        stores: results("store"),
    })
}

/// Tokens that clients got. Ours counts generated tokens when a request ends; its histograms count
/// each as it comes.
fn produced(kind: Kind, total: &Increase) -> Option<f64> {
    let count = |group| total.histogram(group).map(Histogram::count);
    match kind {
        Kind::Saccade => Some(count(names::TTFT)? + count(names::TBT)?),
        _ => total.counter(names::GENERATION_TOKENS),
    }
}

fn tokens(kind: Kind, total: &Increase) -> Tokens {
    let prompt = total.rate(names::PREFILL_TOKENS).or_else(|| total.rate(names::PROMPT_TOKENS));
    Tokens {
        generated_per_s: produced(kind, total).and_then(|tokens| total.per_second(tokens)),
        prompt_per_s: prompt,
    }
}

fn latency(histogram: &Histogram) -> Option<Latency> {
    Some(Latency {
        p50: histogram.quantile(0.5)?,
        p90: histogram.quantile(0.9)?,
        p99: histogram.quantile(0.99)?,
        count: histogram.count(),
    })
}

fn attainment(settings: &Settings, total: &Increase) -> Attainment {
    let share = |target: Option<f64>, group, own: &str| match target {
        Some(target) => total.histogram(group)?.share_within(target),
        None => servers_own(total, own),
    };
    Attainment {
        ttft_target_s: settings.slo_ttft_s,
        ttft: share(settings.slo_ttft_s, names::TTFT, "ttft"),
        tbt_target_s: settings.slo_tbt_s,
        tbt: share(settings.slo_tbt_s, names::TBT, "tpot"),
    }
}

/// Of the requests that ended in the window, the share within the server's own target.
fn servers_own(total: &Increase, target: &str) -> Option<f64> {
    let ended = total.slo_requests(target, None);
    (ended > 0.0).then(|| total.slo_requests(target, Some("true")) / ended)
}

fn host(kind: Kind, total: &Increase) -> Host {
    let tokens = produced(kind, total).filter(|tokens| *tokens > 0.0);
    let per_token = |seconds: Option<f64>| Some(seconds? / tokens?);
    let tokenize_s = total.histogram(names::TOKENIZE).map(|h| h.sum);
    let waits = total.counter_by(names::RUN_QUEUE_WAIT_S, "plane").into_iter();
    Host {
        device_wait_s_per_token: per_token(total.counter(names::HOST_WAIT_S)),
        tokenize_s_per_token: per_token(tokenize_s),
        detokenize_s_per_token: per_token(total.counter(names::DETOKENIZE_S)),
        run_queue_wait_s_per_token: waits
            .filter_map(|(plane, seconds)| Some((plane, per_token(Some(seconds))?)))
            .collect(),
        step_share: total.rate(names::STEP_S),
        host_wait_share: total.rate(names::HOST_WAIT_S),
        reader_wait_share: total.rate(names::READER_WAIT_S),
        steps_per_s: total.rate(names::STEPS),
    }
}

/// Gauges and counters of ours that this version does not know and that name something to show.
fn others(scrape: &Scrape) -> BTreeMap<String, f64> {
    let known = |name: &str| names::COUNTERS.contains(&name);
    let shown = |name: &&str| {
        let of_ours = name.strip_prefix("saccade:").filter(|_| !known(name));
        let worth = of_ours.is_some_and(|n| names::SHOWN_BY_NAME.iter().any(|w| n.contains(w)));
        // The parts of a histogram are declared under its name only.
        worth && matches!(scrape.kind(name), Some("gauge" | "counter"))
    };
    let named = scrape.names().filter(shown).flat_map(|name| {
        scrape.series(name).iter().map(move |series| {
            let labels = series.labels.iter().filter(|(k, _)| *k != "model_name");
            let labels: Vec<String> = labels.map(|(k, v)| format!("{k}={v}")).collect();
            let name = name.trim_start_matches("saccade:");
            let key = if labels.is_empty() {
                name.into()
            } else {
                format!("{name}{{{}}}", labels.join(","))
            };
            (key, series.value)
        })
    });
    named.take(MAX_OTHERS).collect()
}

/// What this server does not tell, in words.
fn missing(scrape: &Scrape) -> Vec<&'static str> {
    let buckets =
        |group: &[&str]| group.iter().any(|n| !scrape.series(&format!("{n}_bucket")).is_empty());
    let has = |name: &str| !scrape.series(name).is_empty();
    let wanted = [
        (has(names::DEVICE_EPOCH), "planes"),
        (has(names::RUN_QUEUE_WAIT_S), "run queues"),
        (has(names::HOST_WAIT_S), "device waits"),
        (has(names::SLOTS), "slots"),
        (buckets(names::TOKENIZE), "tokenization"),
        (has(names::KV_BYTES), "KV by source"),
        (buckets(names::TTFT), "TTFT"),
        (buckets(names::TBT), "TBT"),
        (has(names::RUNNING), "requests"),
        (names::KV_USAGE.iter().any(|n| has(n)), "KV in use"),
    ];
    wanted.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect()
}
