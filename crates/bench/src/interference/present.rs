//! The record for people: tables and a report.

use saccade_report::{Axis, BarChart, Best, Cell as TableCell, Level, Report, Section, Table};

use super::ratio::{Comparison, Ratio, median};
use super::record::{Cell, Record};

/// The two tables of the terminal.
pub(super) fn text(record: &Record) -> String {
    let mut text = comparisons(record).to_text();
    text.push('\n');
    text.push_str(&conditions(record).to_text());
    text
}

/// The page.
///
/// # Errors
/// The record has no JSON form.
pub(super) fn report(record: &Record) -> anyhow::Result<Report> {
    let report = Report::new("Interference")
        .subtitle("The same load in isolation and beside neighbours, interleaved")
        .fact("machine", record.machine.words())
        .fact("command", super::shell_words(&record.command))
        .fact("version", record.version)
        .fact("client", client_words(record))
        .fact("schema", record.schema);
    let mut verdicts = Section::new("What was kept");
    for (level, title, words) in warnings(record) {
        verdicts = verdicts.callout(level, title, words);
    }
    let charts = [
        bars(record, "Retention of output tokens per second", false, |c| &c.retention_tokens),
        bars(record, "Inflation of TTFT P50", true, |c| &c.inflation_ttft_p50),
        bars(record, "Inflation of TTFT P99", true, |c| &c.inflation_ttft_p99),
        bars(record, "Inflation of TPOT P50", true, |c| &c.inflation_tpot_p50),
        bars(record, "Inflation of TPOT P99", true, |c| &c.inflation_tpot_p99),
    ];
    let mut sections = verdicts.table(comparisons(record));
    for chart in charts {
        sections = sections.chart(chart);
    }
    let figures = Section::new("Figures by condition").table(conditions(record));
    let host = Section::new("The host").paragraph(HOST_WORDS).table(host(record));
    report.section(sections).section(figures).section(host).data("interference", record)
}

const HOST_WORDS: &str = "Counters of the server's processes over whole cells, warm-up and drain \
    included; medians over the repeats. Run-queue share: of the time in which a thread wanted a \
    core, the share in which it had none.";

fn client_words(record: &Record) -> String {
    let client = &record.client;
    let refused = if client.priority_refused { " (a higher one is not permitted)" } else { "" };
    format!("priority {}{refused}, cores {}", client.priority, client.cores)
}

/// What must not be overlooked.
pub(super) fn warnings(record: &Record) -> Vec<(Level, String, String)> {
    let mut found = Vec::new();
    let failed: Vec<&Cell> = record.cells.iter().filter(|cell| cell.error.is_some()).collect();
    if let Some(first) = failed.first() {
        let error = first.error.as_deref().unwrap_or_default();
        let words = format!("The first: {} beside {}: {error}", first.server, first.condition);
        found.push((
            Level::Bad,
            format!("Cells that could not be measured: {}", failed.len()),
            words,
        ));
    }
    let late: Vec<&Cell> = record.cells.iter().filter(|cell| !cell.distrust.is_empty()).collect();
    if let Some(first) = late.first() {
        let reasons = first.distrust.join("; ");
        let words = format!("The first: {} beside {}: {reasons}", first.server, first.condition);
        let title = format!("Cells in which the client itself was late: {}", late.len());
        found.push((Level::Warning, title, words));
    }
    if let Some(words) = record.cells.iter().find_map(|cell| cell.layout.warning()) {
        found.push((Level::Warning, "Sessions decide, not threads".to_owned(), words));
    }
    found
}

fn comparisons(record: &Record) -> Table {
    let mut table = Table::new("Beside a neighbour, as a multiple of isolation")
        .column("neighbour")
        .column("server")
        .column("tokens/s kept")
        .column("spread")
        .column("requests/s kept")
        .column("TTFT P50 ×")
        .column("TTFT P99 ×")
        .column("TPOT P50 ×")
        .column("TPOT P99 ×")
        .column("")
        .note(
            "Medians over the repeats, paired; spread: least to greatest. ≥: some requests were \
             cut while they waited. !: the client itself was late in so many cells.",
        );
    for comparison in &record.comparisons {
        table.push([
            comparison.condition.as_str().into(),
            comparison.server.as_str().into(),
            number(comparison.retention_tokens.as_ref()),
            spread(comparison.retention_tokens.as_ref()).into(),
            number(comparison.retention_requests.as_ref()),
            number(comparison.inflation_ttft_p50.as_ref()),
            number(comparison.inflation_ttft_p99.as_ref()),
            number(comparison.inflation_tpot_p50.as_ref()),
            number(comparison.inflation_tpot_p99.as_ref()),
            match comparison.untrusted_cells {
                0 => TableCell::from(""),
                cells => TableCell::from(format!("!{cells}")),
            },
        ]);
    }
    table
}

fn number(ratio: Option<&Ratio>) -> TableCell {
    match ratio {
        None => TableCell::Missing,
        Some(ratio) if ratio.at_least => format!("≥{:.2}", ratio.median).into(),
        Some(ratio) => TableCell::Number(ratio.median, 2),
    }
}

fn spread(ratio: Option<&Ratio>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{:.2}–{:.2}", ratio.min, ratio.max))
}

/// Medians of the figures themselves.
fn conditions(record: &Record) -> Table {
    let mut table = Table::new("Figures, medians over the repeats")
        .column("condition")
        .column("server")
        .column_with_best("tokens/s", Best::None)
        .column("TTFT P50 ms")
        .column("P99 ms")
        .column("TPOT P50 ms")
        .column("P99 ms")
        .column("failed")
        .column("neighbour's work/s")
        .column("client late P99 ms");
    each(record, |condition, server, cells| {
        let of = |value: fn(&saccade_load::Summary) -> f64, decimals| {
            middle(cells, |cell| cell.summary.as_ref().map(value), decimals)
        };
        let failed: u64 = cells
            .iter()
            .filter_map(|cell| cell.summary.as_ref())
            .map(|summary| summary.requests - summary.ok)
            .sum();
        table.push([
            condition.into(),
            server.into(),
            of(|s| s.output_tokens_per_s, 1),
            of(|s| s.from_intended.ttft_ms.p50, 1),
            of(|s| s.from_intended.ttft_ms.p99, 1),
            of(|s| s.tpot_ms.p50, 2),
            of(|s| s.tpot_ms.p99, 2),
            failed.into(),
            work(cells),
            middle(cells, |cell| cell.client.as_ref().map(|c| c.send_lateness_ms.p99), 2),
        ]);
    });
    table
}

fn work(cells: &[&Cell]) -> TableCell {
    let rates: Vec<f64> =
        cells.iter().filter_map(|cell| cell.work.as_ref()).map(|work| work.per_s).collect();
    let unit = cells.iter().find_map(|cell| cell.work.as_ref()).map(|work| work.unit);
    match (median(&rates), unit) {
        (Some(rate), Some(unit)) => format!("{} {unit}", saccade_report::short(rate)).into(),
        _ => TableCell::Missing,
    }
}

fn host(record: &Record) -> Table {
    let mut table = Table::new("")
        .column("condition")
        .column("server")
        .column("cores used")
        .column("run-queue share %")
        .column("wait per slice ms")
        .column("involuntary switches")
        .column("migrations")
        .column("throttled periods")
        .column("CPU pressure %")
        .column("IPC")
        .column("LLC miss %");
    each(record, |condition, server, cells| {
        let of = |value: fn(&super::host_record::HostRecord) -> Option<f64>, decimals| {
            middle(cells, |cell| cell.host.as_ref().and_then(value), decimals)
        };
        table.push([
            condition.into(),
            server.into(),
            of(|h| Some(h.cores_used), 2),
            of(|h| h.run_queue_share.map(|share| share * 100.0), 1),
            of(|h| h.run_queue_ms_per_slice, 3),
            of(|h| h.involuntary_switches.map(|n| n as f64), 0),
            of(|h| h.migrations.map(|n| n as f64), 0),
            of(|h| Some(h.throttling.values().map(|t| t.nr_throttled).sum::<u64>() as f64), 0),
            of(|h| h.cpu_pressure.map(|share| share * 100.0), 1),
            of(|h| h.instructions_per_cycle(), 2),
            of(|h| h.llc_miss_share().map(|share| share * 100.0), 1),
        ]);
    });
    table
}

/// Calls for each condition and server with the cells that were measured.
fn each(record: &Record, mut row: impl FnMut(&str, &str, &[&Cell])) {
    for condition in &record.conditions {
        for server in &record.servers {
            let cells: Vec<&Cell> = record.measured(&server.name, &condition.name).collect();
            row(&condition.name, &server.name, &cells);
        }
    }
}

fn middle(cells: &[&Cell], value: impl Fn(&Cell) -> Option<f64>, decimals: usize) -> TableCell {
    let values: Vec<f64> = cells.iter().filter_map(|cell| value(cell)).collect();
    median(&values).map_or(TableCell::Missing, |value| TableCell::Number(value, decimals))
}

fn bars(
    record: &Record,
    title: &str,
    logarithmic: bool,
    ratio: fn(&Comparison) -> &Option<Ratio>,
) -> BarChart {
    let names = record.conditions[1..].iter().map(|condition| condition.name.clone());
    let axis =
        if logarithmic { Axis::log("× isolation", "") } else { Axis::linear("× isolation", "") };
    let mut chart =
        BarChart::new(title, "neighbour", names, axis).horizontal(1.0, "as in isolation");
    for (slot, server) in record.servers.iter().enumerate() {
        let values = record.conditions[1..].iter().map(|condition| {
            let is_it = |c: &&Comparison| c.server == server.name && c.condition == condition.name;
            let found = record.comparisons.iter().find(is_it).and_then(|c| ratio(c).as_ref());
            found.map_or((f64::NAN, f64::NAN, f64::NAN), |r| (r.median, r.min, r.max))
        });
        chart = chart.series_with_spread(server.name.clone(), values).slot(slot);
    }
    chart
}
