//! The JSON of results. Its form is versioned: `bench/schema/bench-serve.v2.schema.json`.

use saccade_load::analysis::{self, Level, Saturation};
use saccade_load::{
    Arrival, ClientHealth, LoadSpec, RequestRecord, Run, Slo, Source, Summary, Target, nan_as_null,
    unknown,
};
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Planned};
use super::plot::Plot;

/// What is written, and what is read: the version changes with every change that could break a
/// reader. Version 1 had zeros for unknown figures, no `achieved_tokens_per_s` and no plots, and
/// measured closed loops until their last end.
pub(crate) const SCHEMAS: [&str; 2] = ["saccade.bench-serve.v2", "saccade.bench-serve.v1"];

/// Everything that a command measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    pub schema: String,
    pub tool: Tool,
    pub host: Host,
    pub target: Target,
    pub model: String,
    pub slo: Slo,
    /// Whether all runs were made.
    #[serde(default)]
    pub ended: Ended,
    /// Runs that were asked for.
    #[serde(default)]
    pub planned_runs: usize,
    pub runs: Vec<RunResult>,
    /// Of a ladder of rates.
    pub analysis: Option<Analysis>,
}

/// How a run, or all of them, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    /// As planned.
    #[default]
    Complete,
    /// By Ctrl-C.
    Interrupted,
    /// Because more requests failed than `--max-failed` allows.
    MaxFailed,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tool {
    pub name: String,
    pub version: String,
}

/// Where the client ran.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Host {
    pub os: String,
    pub arch: String,
    /// Cores that the client may use.
    pub cores: usize,
    pub client_priority: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunResult {
    /// The rate that was asked for.
    pub rate_rps: Option<f64>,
    pub repeat: u32,
    pub started_unix_s: f64,
    pub started_monotonic_s: f64,
    pub request_id_prefix: String,
    pub window_s: (f64, f64),
    pub spec: LoadSpec,
    pub summary: Summary,
    pub client: ClientHealth,
    pub notes: Vec<String>,
    /// An early end keeps what was measured until then.
    #[serde(default)]
    pub ended: Ended,
    /// What the page draws; none in results of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plot: Option<Plot>,
    /// With `--save-detailed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<RequestRecord>>,
}

impl RunResult {
    pub fn new(
        planned: &Planned,
        run: &Run,
        summary: Summary,
        ended: Ended,
        detailed: bool,
    ) -> RunResult {
        let mut spec = run.spec.clone();
        // Its data are those of the requests; a trace of a million lines is not settings.
        if let Arrival::Replay { timestamps_s } = &mut spec.arrival {
            timestamps_s.truncate(MAX_SPEC_ENTRIES);
        }
        if let Source::Trace { entries } = &mut spec.workload.source {
            entries.truncate(MAX_SPEC_ENTRIES);
        }
        RunResult {
            rate_rps: planned.rate_rps,
            repeat: planned.repeat,
            started_unix_s: run.started_unix_s,
            started_monotonic_s: run.started_monotonic_s,
            request_id_prefix: run.request_id_prefix.clone(),
            window_s: run.window_s,
            spec,
            summary,
            client: run.client.clone(),
            notes: run.notes.clone(),
            ended,
            plot: Some(Plot::of(&run.requests)),
            requests: detailed.then(|| run.requests.clone()),
        }
    }

    /// What the run is called in tables and plots.
    pub fn label(&self) -> String {
        label(self.rate_rps, &self.spec, self.repeat)
    }
}

/// What a run is called.
pub(super) fn label(rate_rps: Option<f64>, spec: &LoadSpec, repeat: u32) -> String {
    let load = match (rate_rps, &spec.arrival) {
        (Some(rate), _) => format!("{rate} requests/s"),
        (None, Arrival::Closed { concurrency }) => format!("{concurrency} in flight"),
        (None, _) => "replay".into(),
    };
    if repeat > 0 { format!("{load} #{}", repeat + 1) } else { load }
}

/// Entries of a trace that are repeated in the results.
const MAX_SPEC_ENTRIES: usize = 16;

/// What a ladder says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Analysis {
    /// One per rate, repeated runs averaged.
    pub levels: Vec<AveragedLevel>,
    pub saturation: Option<Saturation>,
    /// The highest rate that is served, at 95 %.
    pub serviceable_rps: Option<f64>,
    /// Highest rate of the operating range.
    pub operating_range_rps: Option<f64>,
    /// Throughput achieved there.
    pub achieved_at_range_rps: Option<f64>,
    /// Output tokens per second achieved there; none in results of version 1.
    #[serde(default)]
    pub achieved_tokens_at_range_per_s: Option<f64>,
    /// Geometric means over the operating range, of latencies in ms.
    pub geometric_means: GeometricMeans,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct AveragedLevel {
    pub rate_rps: f64,
    #[serde(flatten)]
    pub throughput: Level,
    #[serde(with = "nan_as_null", default = "unknown")]
    pub achieved_tokens_per_s: f64,
    #[serde(with = "nan_as_null")]
    pub output_tokens_per_s: f64,
    #[serde(with = "nan_as_null")]
    pub ttft_p50_ms: f64,
    #[serde(with = "nan_as_null")]
    pub ttft_p99_ms: f64,
    #[serde(with = "nan_as_null")]
    pub tpot_p50_ms: f64,
    #[serde(with = "nan_as_null")]
    pub tpot_p99_ms: f64,
    #[serde(with = "nan_as_null")]
    pub itl_p99_ms: f64,
    #[serde(with = "nan_as_null")]
    pub e2e_p50_ms: f64,
    #[serde(with = "nan_as_null")]
    pub e2e_p99_ms: f64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct GeometricMeans {
    pub ttft_p50_ms: Option<f64>,
    pub ttft_p99_ms: Option<f64>,
    pub tpot_p50_ms: Option<f64>,
    pub tpot_p99_ms: Option<f64>,
    pub itl_p99_ms: Option<f64>,
    pub e2e_p99_ms: Option<f64>,
}

impl Results {
    pub fn new(plan: &Plan, priority: String, runs: Vec<RunResult>, ended: Ended) -> Results {
        let analysis = plan.is_ladder.then(|| Analysis::of(&runs));
        Results {
            schema: SCHEMAS[0].into(),
            tool: Tool {
                name: "saccade bench serve".into(),
                version: env!("CARGO_PKG_VERSION").into(),
            },
            host: Host {
                os: std::env::consts::OS.into(),
                arch: std::env::consts::ARCH.into(),
                cores: std::thread::available_parallelism().map_or(0, usize::from),
                client_priority: priority,
            },
            target: plan.target.clone(),
            model: plan.target.model.clone().unwrap_or_default(),
            slo: plan.slo,
            ended,
            planned_runs: plan.runs.len(),
            runs,
            analysis,
        }
    }
}

impl Analysis {
    pub fn of(runs: &[RunResult]) -> Analysis {
        let levels = averaged(runs);
        let throughput: Vec<Level> = levels.iter().map(|l| l.throughput).collect();
        let range: Vec<AveragedLevel> =
            analysis::operating_range(&throughput).into_iter().map(|i| levels[i]).collect();
        let top = range.last();
        let mean = |of: fn(&AveragedLevel) -> f64| analysis::geometric_mean(range.iter().map(of));
        Analysis {
            saturation: analysis::saturation(&throughput),
            // As it was asked for: what arrived is a random number near it.
            serviceable_rps: analysis::serviceable_rps(&throughput).and_then(|offered| {
                levels.iter().find(|l| l.throughput.offered_rps == offered).map(|l| l.rate_rps)
            }),
            operating_range_rps: top.map(|l| l.rate_rps),
            achieved_at_range_rps: top.map(|l| l.throughput.achieved_rps),
            achieved_tokens_at_range_per_s: top.map(|l| l.achieved_tokens_per_s),
            geometric_means: GeometricMeans {
                ttft_p50_ms: mean(|l| l.ttft_p50_ms),
                ttft_p99_ms: mean(|l| l.ttft_p99_ms),
                tpot_p50_ms: mean(|l| l.tpot_p50_ms),
                tpot_p99_ms: mean(|l| l.tpot_p99_ms),
                itl_p99_ms: mean(|l| l.itl_p99_ms),
                e2e_p99_ms: mean(|l| l.e2e_p99_ms),
            },
            warnings: warnings(runs),
            levels,
        }
    }
}

/// Repeated runs averaged per rate, ascending (Blink, §6.2, does the same before its analysis).
fn averaged(runs: &[RunResult]) -> Vec<AveragedLevel> {
    let mut rates: Vec<f64> = runs.iter().filter_map(|r| r.rate_rps).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let level = |rate: f64| {
        let at: Vec<&Summary> =
            runs.iter().filter(|r| r.rate_rps == Some(rate)).map(|r| &r.summary).collect();
        let mean =
            |of: fn(&Summary) -> f64| at.iter().map(|s| of(s)).sum::<f64>() / at.len() as f64;
        AveragedLevel {
            rate_rps: rate,
            throughput: Level {
                offered_rps: mean(|s| s.offered_rps),
                achieved_rps: mean(|s| s.achieved_rps),
            },
            achieved_tokens_per_s: mean(|s| s.achieved_tokens_per_s),
            output_tokens_per_s: mean(|s| s.output_tokens_per_s),
            ttft_p50_ms: mean(|s| s.from_intended.ttft_ms.p50),
            ttft_p99_ms: mean(|s| s.from_intended.ttft_ms.p99),
            tpot_p50_ms: mean(|s| s.tpot_ms.p50),
            tpot_p99_ms: mean(|s| s.tpot_ms.p99),
            itl_p99_ms: mean(|s| s.itl_ms.p99),
            e2e_p50_ms: mean(|s| s.from_intended.e2e_ms.p50),
            e2e_p99_ms: mean(|s| s.from_intended.e2e_ms.p99),
        }
    };
    rates.into_iter().map(level).collect()
}

/// With fewer requests, one more or less decides between 95 % and less.
const MIN_REQUESTS: u64 = 40;

fn warnings(runs: &[RunResult]) -> Vec<String> {
    let few = |r: &&RunResult| r.summary.requests < MIN_REQUESTS;
    let rates: Vec<String> =
        runs.iter().filter(few).filter_map(|r| r.rate_rps).map(|r| r.to_string()).collect();
    if rates.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "at {} requests/s fewer than {MIN_REQUESTS} requests were measured: too few to tell \
         whether 95 % are served; measure longer",
        rates.join(", ")
    )]
}
