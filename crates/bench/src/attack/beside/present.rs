//! The record for people: two tables for each server, and a page with the ratios as bars.

use saccade_host::Footprint;
use saccade_report::{Axis, BarChart, Level, Report, Section, Table};

use super::analysis::{Cell, Figure};
use super::record::{Record, Window};
use crate::interference::{median, shell_words};
use crate::output::counted;

const MIB: f64 = 1024.0 * 1024.0;

/// A victims' figure of the tables.
type Column = (&'static str, fn(&Cell) -> Figure);

const COLUMNS: [Column; 5] = [
    ("TTFT P50 ms", |cell| cell.ttft_p50_ms),
    ("TTFT P99 ms", |cell| cell.ttft_p99_ms),
    ("gap P99 ms", |cell| cell.gap_p99_ms),
    ("TPOT P99 ms", |cell| cell.tpot_p99_ms),
    ("answers/s", |cell| cell.answers_per_s),
];

/// The tables of the terminal: of each server, its victims and then itself.
pub(super) fn tables(record: &Record) -> Vec<Table> {
    let names = record.servers.iter().map(|server| server.name.as_str());
    names.flat_map(|name| [victims(record, name), server(record, name)]).collect()
}

fn cells<'a>(record: &'a Record, server: &'a str) -> impl Iterator<Item = &'a Cell> {
    record.cells.iter().filter(move |cell| cell.server == server)
}

fn victims(record: &Record, server: &str) -> Table {
    let mut table =
        Table::new(format!("{server}: victims beside attackers")).column("attackers").note(
            "× behind a figure: how many times what the same victims had without attackers, \
             directly before; medians over the repeats. failed: of all victims under attack. !: \
             pairs left out, because the client itself was late.",
        );
    for (title, _) in COLUMNS {
        table = table.column(title);
    }
    table = table.column("failed");
    let quiet = |of: fn(&Cell) -> Figure| {
        let all: Vec<f64> = cells(record, server).map(|cell| of(cell).quiet).collect();
        let known: Vec<f64> = all.into_iter().filter(|value| value.is_finite()).collect();
        median(&known).map_or("–".to_owned(), number)
    };
    let alone = cells(record, server).map(|cell| cell.quiet_failures);
    let alone = alone.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut row = vec!["none".to_owned()];
    row.extend(COLUMNS.map(|(_, of)| quiet(of)));
    row.push(failures(alone));
    table.push(row.into_iter().map(Into::into));
    for cell in cells(record, server) {
        let late = if cell.untrusted_pairs > 0 { " !" } else { "" };
        let mut row = vec![format!("{}{late}", cell.attack.name())];
        row.extend(COLUMNS.map(|(_, of)| figure(of(cell))));
        row.push(failures(cell.attacked_failures));
        table.push(row.into_iter().map(Into::into));
    }
    table
}

fn server(record: &Record, server: &str) -> Table {
    let mut table = Table::new(format!("{server}: the server and the attackers"))
        .column("attackers")
        .column("RSS MiB")
        .column("descriptors")
        .column("quiet after s")
        .column("what the attackers saw")
        .note(
            "RSS and descriptors: the most of all the server's processes, and behind the arrow \
             under attack; –: its processes are not known. quiet after: the longest time until a \
             short request was quick again.",
        );
    for cell in cells(record, server) {
        let of = |footprint: &Option<Footprint>| (*footprint).unwrap_or_default();
        let (quiet, attacked) = (of(&cell.quiet_footprint), of(&cell.attacked_footprint));
        let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / MIB);
        let count = |count: Option<u64>| count.map(|count| count as f64);
        let row = [
            cell.attack.name().to_owned(),
            arrow(mib(quiet.resident_bytes), mib(attacked.resident_bytes)),
            arrow(count(quiet.descriptors), count(attacked.descriptors)),
            recovery(cell),
            cell.attackers.clone(),
        ];
        table.push(row.map(Into::into));
    }
    table
}

fn recovery(cell: &Cell) -> String {
    let quiet = cell.drained_s.map_or(String::new(), |seconds| format!("{seconds:.1}"));
    let never = match cell.undrained.saturating_sub(cell.ended) {
        0 => String::new(),
        count => format!(" not within the limit ×{count}"),
    };
    let ended = if cell.ended > 0 { format!(" ENDED ×{}", cell.ended) } else { String::new() };
    format!("{quiet}{never}{ended}").trim().to_owned()
}

fn failures((all, failed): (u64, u64)) -> String {
    format!("{failed}/{all}")
}

fn arrow(quiet: Option<f64>, attacked: Option<f64>) -> String {
    match (quiet, attacked) {
        (Some(quiet), Some(attacked)) => format!("{quiet:.0} → {attacked:.0}"),
        _ => "–".to_owned(),
    }
}

fn figure(figure: Figure) -> String {
    if !figure.attacked.is_finite() {
        return "–".to_owned();
    }
    let ratio =
        if figure.ratio.is_finite() { format!(" ×{:.2}", figure.ratio) } else { String::new() };
    format!("{}{ratio}", number(figure.attacked))
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The page.
///
/// # Errors
/// The record has no JSON form.
pub(super) fn report(record: &Record) -> anyhow::Result<Report> {
    let setup = &record.setup;
    let mut report = Report::new("Victims beside attackers of every kind")
        .subtitle("What clients that do harm cost clients that do none")
        .fact("machine", record.machine.words())
        .fact("command", shell_words(&record.command))
        .fact("version", record.version.as_str())
        .fact(
            "victims",
            format!(
                "{} of {} and {}-token answers, for {} s without and {} s with attackers; {}",
                counted(setup.victim_streams, "stream"),
                counted(setup.victim_prompt_tokens as usize, "token"),
                setup.victim_output_tokens,
                setup.window_s,
                setup.window_s,
                counted(setup.repeats, "repeat")
            ),
        )
        .fact("keys", if setup.separate_keys { "one for each side" } else { "the same" })
        .fact("client's priority", record.client.priority.to_string())
        .fact("schema", record.schema.as_str());
    for (i, attack) in record.attacks.iter().enumerate() {
        let name = if i == 0 { "attacks" } else { "" };
        report = report.fact(name, format!("{}: {}", attack.words(), attack.kind.entry().does));
    }
    for (i, server) in record.servers.iter().enumerate() {
        let mut section = Section::new(server.name.as_str());
        if i == 0 {
            for (level, title, words) in warnings(record) {
                section = section.callout(level, title, words);
            }
        }
        section = section
            .table(victims(record, &server.name))
            .table(self::server(record, &server.name))
            .chart(bars(record, &server.name));
        report = report.section(section);
    }
    report.data("attackers", record)
}

/// Ratios by attack.
fn bars(record: &Record, server: &str) -> BarChart {
    let named: Vec<String> =
        cells(record, server).map(|cell| cell.attack.name().to_owned()).collect();
    let title = format!("{server}: under attack ÷ without");
    let mut chart = BarChart::new(title, "attackers", named, Axis::linear("ratio", "×").from(0.0))
        .horizontal(1.0, "as without")
        .without_numbers();
    for (title, of) in [COLUMNS[1], COLUMNS[2], COLUMNS[4]] {
        let ratios = cells(record, server).map(|cell| of(cell).ratio);
        chart = chart.series(title.trim_end_matches(" ms"), ratios);
    }
    chart
}

/// What must not be overlooked.
pub(super) fn warnings(record: &Record) -> Vec<(Level, String, String)> {
    let mut found = Vec::new();
    let windows = || record.pairs.iter().flat_map(|pair| [&pair.quiet, &pair.attacked]);
    let mut tell = |level, what: &str, of: fn(&Window) -> Option<String>| {
        let all: Vec<String> = windows().filter_map(of).collect();
        if let Some(first) = all.first() {
            let windows = counted(all.len(), "window");
            found.push((level, format!("{windows}: {what}"), format!("The first: {first}")));
        }
    };
    tell(Level::Bad, "not measured", |window| window.error.clone());
    tell(Level::Bad, "the server ended", |window| window.server_ended.clone());
    tell(Level::Warning, "left out, the client itself was late", |window| {
        (!window.distrust.is_empty()).then(|| window.distrust.join("; "))
    });
    let busy = record.pairs.iter().filter_map(|pair| pair.attacked.attackers.as_ref());
    const BUSY_SHARE: f64 = 0.5;
    let busy = busy.filter(|seen| seen.cpu_share > BUSY_SHARE).count();
    if busy > 0 {
        found.push((
            Level::Info,
            format!("The attackers used more than half a core in {}", counted(busy, "window")),
            "On a machine that they share with the server, that is a part of what victims lost."
                .into(),
        ));
    }
    found
}
