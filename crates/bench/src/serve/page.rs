//! The report on a page.

use saccade_load::{Outcome, RequestRecord, Run};
use saccade_report::{Axis, Chart, Level, LineChart, Report, Section, Series};

use super::args::Metric;
use super::result::{Analysis, Results};
use super::text;

/// Points of one curve: more cannot be seen.
const MAX_POINTS: usize = 400;

/// What plots need of a run's requests.
#[derive(Debug)]
pub(super) struct Samples {
    label: String,
    ttft_ms: Vec<f64>,
    tpot_ms: Vec<f64>,
    /// Seconds from the start, TTFT in ms.
    timeline: Vec<(f64, f64)>,
    /// Intended times of requests without an answer.
    failed_s: Vec<f64>,
}

impl Samples {
    pub fn of(label: String, run: &Run) -> Samples {
        let answered = |r: &&RequestRecord| r.outcome == Outcome::Ok;
        let ttft = |r: &RequestRecord| r.ttft_s().map(|s| s * 1e3);
        // Who got no answer waits for ever: the curve ends below 1.
        let ever = |r: &RequestRecord| if answered(&r) { ttft(r) } else { Some(f64::INFINITY) };
        let timeline: Vec<(f64, f64)> = run
            .measured()
            .filter(answered)
            .filter_map(|r| Some((r.intended_s, ttft(r)?)))
            .collect();
        let failed = run.measured().filter(|r| !answered(r)).map(|r| r.intended_s);
        Samples {
            label,
            ttft_ms: quantiles(run.measured().filter_map(ever)),
            tpot_ms: quantiles(
                run.measured().filter(answered).filter_map(|r| r.tpot_s().map(|s| s * 1e3)),
            ),
            timeline: highest_per_slice(&timeline),
            failed_s: failed.take(MAX_POINTS).collect(),
        }
    }
}

/// At most [`MAX_POINTS`] values that stand evenly in the sorted sample, both ends included.
fn quantiles(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= MAX_POINTS {
        return sorted;
    }
    let last = sorted.len() - 1;
    (0..MAX_POINTS).map(|i| sorted[i * last / (MAX_POINTS - 1)]).collect()
}

/// Of neighbours in time the worst one: thinning must not hide a stall.
fn highest_per_slice(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MAX_POINTS).max(1);
    points
        .chunks(size)
        .filter_map(|slice| slice.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

/// Builds the report.
pub(super) fn report(results: &Results, samples: &[Samples]) -> Report {
    let mut report = Report::new("Load on one server")
        .subtitle(format!("{} · {}", results.target.name, results.model))
        .fact("server", results.target.base_url.clone())
        .fact("model", results.model.clone())
        .fact("client", client(results))
        .section(summary(results))
        .section(distributions(samples));
    if let Some(analysis) = &results.analysis {
        report = report.section(rates(analysis));
    }
    report.section(over_time(samples)).section(health(results))
}

fn client(results: &Results) -> String {
    let host = &results.host;
    let version = results.tool.version;
    format!(
        "saccade {version}, {} {}, {} cores, priority {}",
        host.os, host.arch, host.cores, host.client_priority
    )
}

fn summary(results: &Results) -> Section {
    let mut section = Section::new("Results");
    for warning in results.analysis.iter().flat_map(|a| &a.warnings) {
        section = section.callout(Level::Warning, "Too short", warning);
    }
    if let Some(text) = client_warning(results) {
        section = section.callout(Level::Warning, "The client was not always in time", text);
    }
    if let Some(analysis) = &results.analysis {
        for (name, value) in text::analysis(analysis) {
            section = section.paragraph(format!("{name}: {value}"));
        }
        return section.table(text::geometric_means(analysis)).table(text::ladder(&results.runs));
    }
    for run in &results.runs {
        for (name, value) in text::facts(run) {
            section = section.paragraph(format!("{name}: {value}"));
        }
        section = section.table(text::latencies(run, &ALL_METRICS));
    }
    section
}

const ALL_METRICS: [Metric; 4] = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e];

/// Where the figures may be the client's; the details are in its section.
fn client_warning(results: &Results) -> Option<String> {
    let mut unwell = results.runs.iter().filter(|r| !r.client.warnings.is_empty()).peekable();
    unwell.peek()?;
    let rates: Vec<String> = unwell.filter_map(|r| r.rate_rps).map(|r| r.to_string()).collect();
    let at = match rates.len() {
        0 => String::new(),
        _ => format!("At {} requests/s: ", rates.join(", ")),
    };
    Some(format!("{at}see the section Client before you blame the server."))
}

fn distributions(samples: &[Samples]) -> Section {
    let chart = |title: &str, axis: &str, of: fn(&Samples) -> &Vec<f64>| -> Chart {
        let share = Axis::linear("Share of requests", "").from(0.0).to(1.0);
        let mut chart = LineChart::new(title, Axis::log(axis, "ms"), share);
        for sample in samples {
            chart = chart.series(Series::cdf(sample.label.clone(), of(sample).iter().copied()));
        }
        chart.into()
    };
    Section::new("Distributions").side_by_side([
        chart("Time to first token", "TTFT", |s| &s.ttft_ms),
        chart("Time per output token", "TPOT", |s| &s.tpot_ms),
    ])
}

fn rates(analysis: &Analysis) -> Section {
    let levels = &analysis.levels;
    let marked = |mut chart: LineChart| {
        if let Some(saturation) = analysis.saturation {
            chart = chart.vertical(saturation.rate_rps, "saturation");
        }
        if let Some(rate) = analysis.serviceable_rps {
            chart = chart.vertical(rate, "serviceable (95 %)");
        }
        Chart::from(chart)
    };
    let rate_axis = || Axis::log2("Offered rate", "requests/s");
    let latency =
        |title: &str, p50: fn(usize, &Analysis) -> f64, p99: fn(usize, &Analysis) -> f64| {
            let series = |name: &str, of: fn(usize, &Analysis) -> f64| {
                let points = (0..levels.len()).map(|i| (levels[i].rate_rps, of(i, analysis)));
                Series::new(name).points(points.collect::<Vec<_>>())
            };
            let chart = LineChart::new(title, rate_axis(), Axis::log(title, "ms"))
                .series(series("P50", p50))
                .series(series("P99", p99));
            marked(chart)
        };
    let throughput =
        LineChart::new("Throughput", rate_axis(), Axis::log2("Achieved", "requests/s"))
            .series(Series::new("achieved").points(
                levels.iter().map(|l| (l.rate_rps, l.throughput.achieved_rps)).collect::<Vec<_>>(),
            ))
            .series(Series::new("offered").points(
                levels.iter().map(|l| (l.rate_rps, l.throughput.offered_rps)).collect::<Vec<_>>(),
            ));
    Section::new("By rate").side_by_side([
        marked(throughput),
        latency("TTFT", |i, a| a.levels[i].ttft_p50_ms, |i, a| a.levels[i].ttft_p99_ms),
        latency("TPOT", |i, a| a.levels[i].tpot_p50_ms, |i, a| a.levels[i].tpot_p99_ms),
        latency("E2E", |i, a| a.levels[i].e2e_p50_ms, |i, a| a.levels[i].e2e_p99_ms),
    ])
}

fn over_time(samples: &[Samples]) -> Section {
    let mut chart = LineChart::new(
        "Time to first token over the run",
        Axis::linear("Intended time", "s"),
        Axis::log("TTFT", "ms"),
    )
    .note(
        "Of many neighbours in time the slowest is drawn; crosses are requests without an answer.",
    );
    for sample in samples {
        let series = Series::new(sample.label.clone()).points(sample.timeline.iter().copied());
        let series = sample.failed_s.iter().fold(series.scattered(), |s, at| s.timed_out(*at));
        chart = chart.series(series);
    }
    Section::new("Over time").chart(chart)
}

fn health(results: &Results) -> Section {
    let mut section = Section::new("Client");
    for run in &results.runs {
        let at = run.rate_rps.map(|r| format!("at {r} requests/s: ")).unwrap_or_default();
        let facts = text::facts(run);
        let client = facts.last().map(|(_, value)| value.clone()).unwrap_or_default();
        section = section.paragraph(format!("{at}{client}"));
        for text in run.client.warnings.iter().chain(&run.notes) {
            section = section.paragraph(format!("{at}{text}"));
        }
    }
    section
}
