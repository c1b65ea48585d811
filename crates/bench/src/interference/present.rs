//! The record for people: tables and a report.

use saccade_report::{Axis, BarChart, Cell as TableCell, Level, Report, Section, Table};

use super::ratio::{Comparison, Ratio, median};
use super::record::{Cell, Record};
use crate::output::counted;

/// The tables of the terminal.
pub(super) fn text(record: &Record) -> String {
    let tables = [retention(record), inflation(record), throughput(record), latencies(record)];
    tables.map(|table| table.to_text()).join("\n")
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
        .fact("version", record.version.as_str())
        .fact("client", client_words(record))
        .fact("schema", record.schema.as_str());
    let mut verdicts = Section::new("What was kept");
    for (level, title, words) in warnings(record) {
        verdicts = verdicts.callout(level, title, words);
    }
    let charts = [
        bars(record, "Retention of output tokens/s", false, |c| &c.retention_tokens),
        bars(record, "Inflation of TTFT P50", true, |c| &c.inflation_ttft_p50),
        bars(record, "Inflation of TTFT P99", true, |c| &c.inflation_ttft_p99),
        bars(record, "Inflation of TPOT P50", true, |c| &c.inflation_tpot_p50),
        bars(record, "Inflation of TPOT P99", true, |c| &c.inflation_tpot_p99),
    ];
    let mut sections = verdicts.table(retention(record)).table(inflation(record));
    for chart in charts {
        sections = sections.chart(chart);
    }
    let figures =
        Section::new("Figures by condition").table(throughput(record)).table(latencies(record));
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
        let words = format!("The first: {}, {}: {error}", first.server, first.condition);
        let cells = counted(failed.len(), "cell");
        found.push((Level::Bad, format!("{cells} could not be measured"), words));
    }
    let late: Vec<&Cell> = record.cells.iter().filter(|cell| !cell.distrust.is_empty()).collect();
    if let Some(first) = late.first() {
        let reasons = first.distrust.join("; ");
        let words = format!("The first: {}, {}: {reasons}", first.server, first.condition);
        let cells = counted(late.len(), "cell");
        let title = match record.is_version_1() {
            true => format!("The client was late in {cells}, which the results include"),
            false => format!("{cells} left out, because the client itself was late"),
        };
        found.push((Level::Warning, title, words));
    }
    if record.is_version_1() {
        let words = "Retention is of rates up to the last answer: longer answers alone make it \
             lower. Later versions compare what servers keep up with.";
        found.push((Level::Info, "A record of version 1".to_owned(), words.to_owned()));
    }
    if let Some(words) = record.cells.iter().find_map(|cell| cell.layout.warning()) {
        found.push((Level::Warning, "Sessions share the cores, not threads".to_owned(), words));
    }
    found
}

fn retention(record: &Record) -> Table {
    let mut table = Table::new("Throughput beside a neighbour, as a multiple of isolation")
        .column("neighbour")
        .column("server")
        .column("tokens/s kept")
        .column("spread")
        .column("requests/s kept")
        .column("left out")
        .note(
            "Medians over the repeats, in pairs; spread: least to greatest. Left out: cells in \
             which the client itself was late.",
        );
    for comparison in &record.comparisons {
        table.push([
            comparison.condition.as_str().into(),
            comparison.server.as_str().into(),
            number(comparison.retention_tokens.as_ref()),
            spread(comparison.retention_tokens.as_ref()).into(),
            number(comparison.retention_requests.as_ref()),
            comparison.untrusted_cells.into(),
        ]);
    }
    table
}

fn inflation(record: &Record) -> Table {
    let mut table = Table::new("Latency beside a neighbour, as a multiple of isolation")
        .column("neighbour")
        .column("server")
        .column("TTFT P50")
        .column("TTFT P99")
        .column("TPOT P50")
        .column("TPOT P99")
        .note("≥: some requests were cut while they waited.");
    for comparison in &record.comparisons {
        table.push([
            comparison.condition.as_str().into(),
            comparison.server.as_str().into(),
            number(comparison.inflation_ttft_p50.as_ref()),
            number(comparison.inflation_ttft_p99.as_ref()),
            number(comparison.inflation_tpot_p50.as_ref()),
            number(comparison.inflation_tpot_p99.as_ref()),
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
fn throughput(record: &Record) -> Table {
    let mut table = Table::new("Throughput, medians over the repeats")
        .column("condition")
        .column("server")
        .column("tokens/s")
        .column("requests/s")
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
        let tokens = match record.is_version_1() {
            true => of(|s| s.output_tokens_per_s, 1),
            false => of(|s| s.achieved_tokens_per_s, 1),
        };
        table.push([
            condition.into(),
            server.into(),
            tokens,
            of(|s| s.achieved_rps, 2),
            failed.into(),
            work(cells),
            middle(cells, |cell| cell.client.as_ref().map(|c| c.send_lateness_ms.p99), 2),
        ]);
    });
    table
}

fn latencies(record: &Record) -> Table {
    let mut table = Table::new("Latency in ms, medians over the repeats")
        .column("condition")
        .column("server")
        .column("TTFT P50")
        .column("TTFT P99")
        .column("TPOT P50")
        .column("TPOT P99");
    each(record, |condition, server, cells| {
        let of = |value: fn(&saccade_load::Summary) -> f64, decimals| {
            middle(cells, |cell| cell.summary.as_ref().map(value), decimals)
        };
        table.push([
            condition.into(),
            server.into(),
            of(|s| s.from_intended.ttft_ms.p50, 1),
            of(|s| s.from_intended.ttft_ms.p99, 1),
            of(|s| s.tpot_ms.p50, 2),
            of(|s| s.tpot_ms.p99, 2),
        ]);
    });
    table
}

fn work(cells: &[&Cell]) -> TableCell {
    let rates: Vec<f64> =
        cells.iter().filter_map(|cell| cell.work.as_ref()).map(|work| work.per_s).collect();
    let unit = cells.iter().find_map(|cell| cell.work.as_ref()).map(|work| &work.unit);
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

/// Calls for each condition and server with the cells that count.
fn each(record: &Record, mut row: impl FnMut(&str, &str, &[&Cell])) {
    for condition in &record.conditions {
        for server in &record.servers {
            let measured = record.measured(&server.name, &condition.name);
            let cells: Vec<&Cell> =
                measured.filter(|cell| cell.counts() || record.is_version_1()).collect();
            row(&condition.name, &server.name, &cells);
        }
    }
}

fn middle(cells: &[&Cell], value: impl Fn(&Cell) -> Option<f64>, decimals: usize) -> TableCell {
    let values = cells.iter().filter_map(|cell| value(cell)).filter(|value| value.is_finite());
    let values: Vec<f64> = values.collect();
    median(&values).map_or(TableCell::Missing, |value| TableCell::Number(value, decimals))
}

fn bars(
    record: &Record,
    title: &str,
    logarithmic: bool,
    ratio: fn(&Comparison) -> &Option<Ratio>,
) -> BarChart {
    let conditions = record.conditions.get(1..).unwrap_or_default();
    let names = conditions.iter().map(|condition| condition.name.clone());
    let axis =
        if logarithmic { Axis::log("× isolation", "") } else { Axis::linear("× isolation", "") };
    let mut chart =
        BarChart::new(title, "neighbour", names, axis).horizontal(1.0, "as in isolation");
    for (slot, server) in record.servers.iter().enumerate() {
        let values = conditions.iter().map(|condition| {
            let is_it = |c: &&Comparison| c.server == server.name && c.condition == condition.name;
            let found = record.comparisons.iter().find(is_it).and_then(|c| ratio(c).as_ref());
            found.map_or((f64::NAN, f64::NAN, f64::NAN), |r| (r.median, r.min, r.max))
        });
        chart = chart.series_with_spread(server.name.clone(), values).slot(slot);
    }
    chart
}
