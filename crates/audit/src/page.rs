//! The finding as one HTML page.

use std::path::Path;

use anyhow::Result;
use saccade_report::{Axis, BarChart, Level, LineChart, Report, Section, Series};

use crate::result::{Audit, Finding, Verdict};
use crate::rule::{AT_RISK, RULES};
use crate::tables;

/// GPU types with a curve of their own; more cannot be told apart.
const MAX_CURVES: usize = 6;
const MAX_ROWS: usize = 50;
/// Lowest ratio that is drawn: one core for 32 GPUs.
const LOWEST: f64 = 1.0 / 32.0;

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub fn write(audit: &Audit, place: &str, path: &Path) -> Result<()> {
    let (level, title, text) = verdict(audit);
    let mut summary = Section::new("Verdict").callout(level, title, text);
    for note in &audit.notes {
        summary = summary.paragraph(note.as_str());
    }
    let mut report = Report::new("Cores per GPU in this cluster")
        .subtitle("Allocations by the scheduler's accounting, weighted by GPU hours")
        .fact("inputs", audit.inputs.join("\n"))
        .fact("rows", format!("{} read, {} counted", audit.rows.read, audit.rows.counted))
        .fact("made by", format!("saccade audit {}", env!("CARGO_PKG_VERSION")))
        .section(summary);
    if audit.overall.jobs > 0 {
        report = report
            .section(distributions(audit))
            .section(Section::new("Too few cores").chart(shares(audit)).table(tables::bands(audit)))
            .section(percentiles(audit, place))
            .section(Section::new("Cost of enough cores").table(tables::cost(&audit.cost)));
    }
    let rows = Section::new("Rows").table(tables::rows(audit));
    report.section(rows).data("audit", audit)?.write(path)
}

/// The verdict in words.
pub fn verdict(audit: &Audit) -> (Level, &'static str, String) {
    let below = |i: usize| audit.overall.share_below(RULES[i]) * 100.0;
    let hours = audit.overall.gpu_hours;
    let hours = saccade_report::grouped(hours, tables::hour_decimals(hours));
    let text = format!(
        "{:.1} % of {hours} GPU hours had fewer than {AT_RISK} cores per GPU, {:.1} % fewer than \
         #GPUs + 1 cores.",
        below(2),
        below(0)
    );
    match audit.verdict {
        Verdict::Healthy => (Level::Good, "Few GPU hours are short of cores", text),
        Verdict::AtRisk => (Level::Warning, "GPU hours at risk", text),
        Verdict::Starved => (Level::Bad, "GPU hours starved of cores", text),
        Verdict::Nothing => {
            (Level::Info, "No job with GPUs", "There is nothing to judge in these rows.".to_owned())
        }
    }
}

fn distributions(audit: &Audit) -> Section {
    let mut chart = LineChart::new(
        "Cores per GPU, weighted by GPU hours",
        Axis::log2("Cores per GPU", "").from(LOWEST.max(lowest(audit))),
        Axis::linear("Share of GPU hours", "").from(0.0).to(1.0),
    )
    .series(curve(&audit.overall, "all"));
    if audit.by_model.len() > 1 {
        for model in audit.by_model.iter().take(MAX_CURVES) {
            chart = chart.series(curve(model, &model.name));
        }
    }
    for (percentile, name) in [("p25", "P25"), ("p50", "P50"), ("p75", "P75")] {
        let value = percentile_of(&audit.overall, percentile);
        chart = chart.vertical(value, format!("{name}: {}", saccade_report::short(value)));
    }
    chart = chart.note(
        "A curve shows the share of GPU hours with at most that many cores per GPU. Jobs without \
         any core count in the share, left of what a logarithmic axis shows. Vertical lines: \
         percentiles of all GPUs.",
    );
    Section::new("Distribution").chart(chart)
}

fn percentile_of(finding: &Finding, name: &str) -> f64 {
    let wanted = |p: &crate::result::Percentile| p.name() == name;
    finding.percentiles.iter().find(|(p, _)| wanted(p)).map_or(f64::NAN, |(_, v)| *v)
}

/// The power of two at or below the lowest ratio of any core at all.
fn lowest(audit: &Audit) -> f64 {
    let ratios = audit.overall.cdf.iter().map(|p| p.0).filter(|r| *r > 0.0);
    2f64.powf(ratios.fold(1.0, f64::min).log2().floor())
}

fn curve(finding: &Finding, name: &str) -> Series {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut before = 0.0;
    for (ratio, share) in finding.cdf.iter().copied() {
        if ratio >= LOWEST {
            if points.is_empty() {
                points.push((ratio, before));
            }
            points.push((ratio, share));
        }
        before = share;
    }
    Series::new(name).points(points).steps()
}

fn shares(audit: &Audit) -> BarChart {
    let groups: Vec<&Finding> =
        std::iter::once(&audit.overall).chain(audit.by_model.iter().take(MAX_CURVES)).collect();
    let names = groups.iter().map(|g| g.name.clone());
    let y = Axis::linear("Share of GPU hours", "%").from(0.0).to(100.0);
    RULES.into_iter().fold(
        BarChart::new("GPU hours with too few cores", "GPU type", names, y),
        |chart, rule| {
            let values: Vec<f64> = groups.iter().map(|g| round(g.share_below(rule))).collect();
            chart.series(rule.title(), values)
        },
    )
}

/// A share as a percentage with one decimal, as it is written above its bar.
fn round(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

fn percentiles(audit: &Audit, place: &str) -> Section {
    Section::new("Percentiles")
        .table(tables::percentiles(audit, "GPU type", &audit.by_model, MAX_ROWS))
        .table(tables::percentiles(audit, place, &audit.by_place, MAX_ROWS))
}
