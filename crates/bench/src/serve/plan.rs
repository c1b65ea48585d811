//! From flags to the runs that are made.

use anyhow::{Context, bail, ensure};
use saccade_load::{
    Api, Arrival, Lengths, LoadSpec, SharedPrefix, Slo, Source, Target, Trace, Warmup, Workload,
    analysis,
};

use super::args::{Args, Dataset, Ladder, LoadArgs, Metric, Spread, TargetArgs, WorkloadArgs};

/// Measured requests where nothing else ends the run, as in vLLM.
const DEFAULT_REQUESTS: u64 = 1000;
/// Seconds at each rate of a ladder (Blink, §6.1).
const LEVEL_S: f64 = 60.0;
/// Greatest default warm-up of a rate.
const MAX_DEFAULT_WARMUP_S: f64 = 5.0;
/// Standard deviations above the mean at which drawn lengths end.
const MAX_DEVIATIONS: f64 = 6.0;

/// One run to make.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// The rate that was asked for; `None` for closed loops, bursts and replays.
    pub rate_rps: Option<f64>,
    /// Which of the runs at this rate, from 0.
    pub repeat: u32,
    pub spec: LoadSpec,
}

/// What a command line means.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub target: Target,
    pub slo: Slo,
    pub runs: Vec<Planned>,
    /// Several rates: they are analysed together.
    pub is_ladder: bool,
}

/// Reads the flags.
///
/// # Errors
/// Names the flag and its bound.
pub(super) fn plan(args: &Args) -> anyhow::Result<Plan> {
    let load = &args.load;
    let rates = rates(load);
    let is_ladder = !rates.is_empty();
    let (arrivals, workload) = arrivals(args, &rates)?;
    let mut runs = Vec::new();
    for repeat in 0..load.repeat {
        for (rate_rps, arrival) in &arrivals {
            let spec = spec(load, arrival.clone(), workload.clone(), repeat, is_ladder);
            spec.validate()?;
            runs.push(Planned { rate_rps: *rate_rps, repeat, spec });
        }
    }
    let limit = |metric: Metric| {
        args.output.goodput.iter().rev().find(|t| t.metric == metric).map(|t| t.limit_ms)
    };
    let slo = Slo {
        ttft_ms: limit(Metric::Ttft),
        tpot_ms: limit(Metric::Tpot),
        e2e_ms: limit(Metric::E2e),
    };
    Ok(Plan { target: target(&args.target)?, slo, runs, is_ladder })
}

fn rates(load: &LoadArgs) -> Vec<f64> {
    match load.ladder {
        Some(Ladder::Blink) => analysis::BLINK_RATES.to_vec(),
        None => load.rates.clone(),
    }
}

fn target(args: &TargetArgs) -> anyhow::Result<Target> {
    let mut target = Target::new(&args.base_url);
    target.api = args.api.into();
    if let Some(path) = &args.endpoint {
        ensure!(path.starts_with('/'), "--endpoint must begin with a slash: '{path}'");
        if path.ends_with("chat/completions") {
            target.api = Api::Chat;
        }
    }
    target.endpoint.clone_from(&args.endpoint);
    target.model.clone_from(&args.model);
    target.tls = args.tls.tls();
    target.api_key = args.api_key.clone().filter(|key| !key.is_empty());
    if let Some(name) = &args.name {
        target.name.clone_from(name);
    }
    if let Some(json) = &args.extra_body {
        target.extra_body =
            serde_json::from_str(json).context("--extra-body must be a JSON object")?;
    }
    Ok(target)
}

type Arrivals = Vec<(Option<f64>, Arrival)>;

fn arrivals(args: &Args, rates: &[f64]) -> anyhow::Result<(Arrivals, Workload)> {
    let load = &args.load;
    let mut workload = workload(&args.workload)?;
    if let Some(path) = &load.trace {
        ensure!(load.trace_speed > 0.0, "--trace-speed must be above 0");
        let trace = Trace::read(path)?;
        let timestamps_s = trace.timestamps_s.iter().map(|t| t / load.trace_speed).collect();
        if !trace.entries.is_empty() {
            workload.source = Source::Trace { entries: trace.entries };
        }
        return Ok((vec![(None, Arrival::Replay { timestamps_s })], workload));
    }
    if !rates.is_empty() {
        let all = rates.iter().map(|rate| (Some(*rate), at_rate(load, *rate))).collect();
        return Ok((all, workload));
    }
    if load.request_rate.is_finite() {
        return Ok((vec![(Some(load.request_rate), at_rate(load, load.request_rate))], workload));
    }
    ensure!(load.request_rate > 0.0, "--request-rate must be above 0");
    let all_at_once = || load.num_prompts.unwrap_or(DEFAULT_REQUESTS) + load.num_warmups;
    let concurrency = match (load.max_concurrency, load.duration) {
        (Some(n), _) => n,
        (None, None) => usize::try_from(all_at_once()).unwrap_or(usize::MAX),
        (None, Some(_)) => {
            bail!(
                "--duration needs a --request-rate or a --max-concurrency: all at once has no end"
            )
        }
    };
    Ok((vec![(None, Arrival::Closed { concurrency })], workload))
}

fn at_rate(load: &LoadArgs, rate_rps: f64) -> Arrival {
    if load.evenly {
        Arrival::Constant { rate_rps }
    } else {
        Arrival::random(rate_rps, load.burstiness)
    }
}

fn spec(
    load: &LoadArgs,
    arrival: Arrival,
    workload: Workload,
    repeat: u32,
    is_ladder: bool,
) -> LoadSpec {
    let duration_s = load.duration.or(is_ladder.then_some(LEVEL_S));
    let replay = matches!(arrival, Arrival::Replay { .. });
    let counted = duration_s.is_none() && !replay;
    let warmup_s = match (load.warmup, duration_s) {
        (Some(seconds), _) => seconds,
        (None, Some(duration_s)) if is_ladder => (duration_s / 10.0).min(MAX_DEFAULT_WARMUP_S),
        _ => 0.0,
    };
    let concurrency = match arrival {
        Arrival::Closed { concurrency } => Some(concurrency),
        _ => load.max_concurrency,
    };
    let mut spec = LoadSpec::new(arrival, workload, 1);
    spec.requests = load.num_prompts.or(counted.then_some(DEFAULT_REQUESTS));
    spec.duration_s = duration_s;
    spec.warmup = Warmup { requests: load.num_warmups, seconds: warmup_s };
    spec.request_timeout_s = load.request_timeout;
    spec.drain_timeout_s = load.drain_timeout;
    spec.max_in_flight = concurrency.unwrap_or(LoadSpec::DEFAULT_MAX_IN_FLIGHT);
    // Repetitions are other draws of the same distributions.
    spec.seed = load.seed.wrapping_add(u64::from(repeat));
    spec
}

fn workload(args: &WorkloadArgs) -> anyhow::Result<Workload> {
    let path =
        || args.dataset_path.clone().context("this data set needs its file: --dataset-path FILE");
    let output = |default: u32| Lengths::Fixed { tokens: args.output_len.unwrap_or(default) };
    let source = match args.dataset_name {
        Dataset::Random => {
            ensure!(args.dataset_path.is_none(), "--dataset-path needs a --dataset-name");
            random(args)?
        }
        Dataset::Sharegpt => Source::ShareGpt {
            path: path()?,
            output: args.output_len.map(|tokens| Lengths::Fixed { tokens }),
        },
        Dataset::Longbench | Dataset::Custom => {
            Source::JsonLines { path: path()?, output: output(args.random_output_len) }
        }
    };
    Ok(Workload { exact: args.ignore_eos, ..args.prompts.of(Workload::of(source)) })
}

fn random(args: &WorkloadArgs) -> anyhow::Result<Source> {
    let ratio = args.random_range_ratio;
    ensure!((0.0..1.0).contains(&ratio), "--random-range-ratio must lie in 0..1, is {ratio}");
    let prefix = (args.random_prefix_len > 0).then_some(SharedPrefix {
        tokens: args.random_prefix_len,
        share: args.random_prefix_share,
        groups: args.random_prefix_groups,
    });
    Ok(Source::Generated {
        input: lengths(args, args.random_input_len, args.random_input_std),
        output: lengths(args, args.random_output_len, args.random_output_std),
        prefix,
    })
}

fn lengths(args: &WorkloadArgs, tokens: u32, std: f64) -> Lengths {
    let mean = f64::from(tokens);
    let (min, max) = (1, (mean + MAX_DEVIATIONS * std).ceil() as u32);
    match args.random_distribution {
        Spread::Normal => Lengths::Normal { mean, std, min, max },
        Spread::Lognormal => Lengths::LogNormal { mean, std, min, max },
        Spread::Uniform if args.random_range_ratio == 0.0 => Lengths::Fixed { tokens },
        Spread::Uniform => Lengths::Uniform {
            min: ((mean * (1.0 - args.random_range_ratio)).floor() as u32).max(1),
            max: (mean * (1.0 + args.random_range_ratio)).ceil() as u32,
        },
    }
}
