//! The report on a page.

use saccade_report::{Axis, Chart, Level, LineChart, Report, Section, Series};

use super::args::Metric;
use super::plot::Plot;
use super::result::{Analysis, Ended, Results};
use super::text;

/// Builds the report.
pub(super) fn report(results: &Results) -> Report {
    let mut report = Report::new("Load on one server")
        .subtitle(format!("{} · {}", results.target.name, results.model))
        .fact("server", results.target.base_url.clone())
        .fact("model", results.model.clone())
        .fact("client", client(results))
        .section(summary(results));
    let plots = plots(results);
    if !plots.is_empty() {
        report = report.section(distributions(&plots));
    }
    if let Some(analysis) = &results.analysis {
        report = report.section(rates(analysis));
    }
    if !plots.is_empty() {
        report = report.section(over_time(&plots));
    }
    report.section(health(results))
}

/// Each run that has one, with its label. Results of version 1 have them where the records of all
/// requests were kept.
fn plots(results: &Results) -> Vec<(String, Plot)> {
    let plot = |run: &super::result::RunResult| {
        let of_records = || run.requests.as_deref().map(Plot::of);
        Some((run.label(), run.plot.clone().or_else(of_records)?))
    };
    results.runs.iter().filter_map(plot).collect()
}

fn client(results: &Results) -> String {
    let host = &results.host;
    let version = &results.tool.version;
    format!(
        "saccade {version}, {} {}, {} cores, priority {}",
        host.os, host.arch, host.cores, host.client_priority
    )
}

fn summary(results: &Results) -> Section {
    let mut section = Section::new("Results");
    if results.ended != Ended::Complete {
        section = section.callout(Level::Warning, "Not the whole measurement", text::end(results));
    }
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
        section = section.table(text::geometric_means(analysis));
        return section
            .table(text::rates(&results.runs))
            .table(text::rate_latencies(&results.runs));
    }
    for run in &results.runs {
        for (name, value) in text::facts(run) {
            let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
            section = section.paragraph(format!("{name}{value}"));
        }
        section = section.table(text::latencies(run, &ALL_METRICS));
    }
    section
}

const ALL_METRICS: [Metric; 4] = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e];

/// Where the figures may be those of the client; the details are in its section.
fn client_warning(results: &Results) -> Option<String> {
    let mut unwell = results.runs.iter().filter(|r| !r.client.warnings.is_empty()).peekable();
    unwell.peek()?;
    let rates: Vec<String> = unwell.filter_map(|r| r.rate_rps).map(|r| r.to_string()).collect();
    let at = match rates.len() {
        0 => String::new(),
        _ => format!("At {} requests/s: ", rates.join(", ")),
    };
    Some(format!("{at}read the section Client before you blame the server."))
}

fn distributions(plots: &[(String, Plot)]) -> Section {
    let chart = |title: &str, axis: &str, of: fn(&Plot) -> Vec<f64>| -> Chart {
        let share = Axis::linear("Share of requests", "").from(0.0).to(1.0);
        let mut chart = LineChart::new(title, Axis::log(axis, "ms"), share);
        for (label, plot) in plots {
            chart = chart.series(Series::cdf(label.clone(), of(plot)));
        }
        chart.into()
    };
    Section::new("Distributions").side_by_side([
        chart("Time to first token", "TTFT", |plot| plot.ttft_ms().collect()),
        chart("Time per output token", "TPOT", |plot| plot.tpot_ms.clone()),
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

fn over_time(plots: &[(String, Plot)]) -> Section {
    let mut chart = LineChart::new(
        "Time to first token over the run",
        Axis::linear("Intended time", "s"),
        Axis::log("TTFT", "ms"),
    )
    .note(
        "Where points are many, the slowest of neighbours in time is drawn. Crosses: requests \
         without an answer.",
    );
    for (label, plot) in plots {
        let series = Series::new(label.clone()).points(plot.timeline.iter().copied());
        let series = plot.failed_s.iter().fold(series.scattered(), |s, at| s.timed_out(*at));
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
