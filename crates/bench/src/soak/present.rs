//! The record for people: how requests ended, what the planes held, and the curves over time.

use std::collections::BTreeSet;

use saccade_host::Footprint;
use saccade_report::{Axis, Chart, Level, LineChart, Report, Section, Series, Table};

use super::record::{End, Kill, Record, Sample};
use crate::interference::{median, shell_words};
use crate::output::counted;

const MIB: f64 = 1024.0 * 1024.0;
/// Marks of signals in a plot; more would hide the curves.
const MAX_MARKS: usize = 60;

/// How the victims' requests ended.
pub(super) fn ends(record: &Record) -> Table {
    let mut table = Table::new("How the victims' requests ended")
        .column("end")
        .column("requests")
        .column("may be")
        .note("Answers are compared with the ones learnt before, token for token.");
    for end in End::ALL {
        let count = record.ends.get(&end).copied().unwrap_or_default();
        let may = if end.is_fault() { "no" } else { "yes" };
        table.push([end.words().into(), count.into(), may.into()]);
    }
    table
}

/// Why requests were not answered that may end so.
pub(super) fn reasons(record: &Record) -> Table {
    let mut table =
        Table::new("What the others were told, numbers as #").column("requests").column("words");
    for (words, &count) in &record.reasons {
        table.push([count.into(), words.as_str().into()]);
    }
    table
}

/// What the planes held.
pub(super) fn memory(record: &Record) -> Table {
    let mut table = Table::new("Memory and descriptors of the planes")
        .column("plane")
        .column("at rest, MiB of its own")
        .column("most MiB of its own")
        .column("most MiB in memory")
        .column("at rest, descriptors")
        .column("most descriptors")
        .note(
            "At rest: before victims and attackers came → after they had gone. Of its own: pages \
             that no other process shares. –: not known.",
        );
    for plane in planes(record) {
        let (before, after) =
            (of(&record.at_rest_before, &plane), of(&record.at_rest_after, &plane));
        let most = record.samples.iter().map(|sample| of(sample, &plane));
        let most = most.fold(Footprint::default(), Footprint::most);
        let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / MIB);
        let count = |count: Option<u64>| count.map(|count| count as f64);
        let row = [
            plane,
            arrow(mib(before.private_bytes), mib(after.private_bytes)),
            whole(mib(most.private_bytes)),
            whole(mib(most.resident_bytes)),
            arrow(count(before.descriptors), count(after.descriptors)),
            whole(count(most.descriptors)),
        ];
        table.push(row.map(Into::into));
    }
    table
}

fn planes(record: &Record) -> BTreeSet<String> {
    let ends = [&record.at_rest_before, &record.at_rest_after];
    let all = record.samples.iter().chain(ends);
    all.flat_map(|sample| sample.planes.keys().cloned()).collect()
}

fn of(sample: &Sample, plane: &str) -> Footprint {
    sample.planes.get(plane).copied().unwrap_or_default()
}

fn whole(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.0}"))
}

fn arrow(before: Option<f64>, after: Option<f64>) -> String {
    format!("{} → {}", whole(before), whole(after))
}

/// What must not be overlooked.
pub(super) fn verdicts(record: &Record) -> Vec<(Level, String, String)> {
    let mut found = Vec::new();
    let requests: u64 = record.ends.values().sum();
    let right = record.ends.get(&End::Right).copied().unwrap_or_default();
    if record.is_clean() {
        found.push((
            Level::Good,
            format!("No wrong, lost or doubled token in {requests} requests"),
            format!(
                "{right} answers of {} tokens were as known, by {}; every other request ended with \
                 an explicit error, or with its connection when the process that listened was \
                 killed.",
                record.right_tokens, record.setup.compared_by
            ),
        ));
    }
    if let Some(first) = record.faults.first() {
        found.push((
            Level::Bad,
            format!("{} of {requests} requests ended as none may", record.fault_count()),
            format!(
                "The first, at {:.1} s, question {}: {}: {}",
                first.from_to_s.1,
                first.question,
                first.end.words(),
                first.words
            ),
        ));
    }
    if let Some(why) = &record.last_check {
        found.push((Level::Bad, "The server did not recover".into(), why.clone()));
    }
    if let Some(how) = &record.server_ended {
        found.push((Level::Bad, "The server ended".into(), how.clone()));
    }
    if right == 0 {
        let words = "Nothing was compared: the soak says nothing.".to_owned();
        found.push((Level::Bad, "No request was answered".into(), words));
    }
    if !record.kills.is_empty() {
        found.push(recoveries(&record.kills));
    }
    found
}

fn recoveries(kills: &[Kill]) -> (Level, String, String) {
    let times: Vec<f64> = kills.iter().filter_map(|kill| kill.recovered_s).collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    let words = median(&times).map_or("No right answer came after one.".to_owned(), |median| {
        format!(
            "The next right answer to a later request came after {median:.2} s (median), at most \
             {longest:.2} s; {} had none before the next signal or the end.",
            kills.len() - times.len()
        )
    });
    (Level::Info, counted(kills.len(), "signal"), words)
}

/// The page.
///
/// # Errors
/// The record has no JSON form.
pub(super) fn report(record: &Record) -> anyhow::Result<Report> {
    let setup = &record.setup;
    let mut first = Section::new("Result");
    for (level, title, words) in verdicts(record) {
        first = first.callout(level, title, words);
    }
    let first = first
        .table(ends(record))
        .table(reasons(record))
        .table(memory(record))
        .chart(answers(record));
    let own = curves(record, "memory of its own", "MiB", |of| {
        of.private_bytes.map(|bytes| bytes as f64 / MIB)
    });
    let descriptors =
        curves(record, "descriptors", "", |of| of.descriptors.map(|count| count as f64));
    let over_time = Section::new("Memory and descriptors over time")
        .paragraph("Vertical lines: signals. A killed plane starts from zero.")
        .side_by_side(own)
        .side_by_side(descriptors);
    Report::new("A soak with attackers and signals")
        .subtitle("Every answer compared with one that is known")
        .fact("machine", record.machine.words())
        .fact("command", shell_words(&record.command))
        .fact("version", record.version.as_str())
        .fact("lasted", format!("{:.0} s", record.lasted_s))
        .fact(
            "victims",
            format!(
                "{}, {}, compared by {}",
                counted(setup.victim_streams, "stream"),
                counted(setup.questions, "question"),
                setup.compared_by
            ),
        )
        .fact("seed", setup.seed.to_string())
        .fact("schema", record.schema.as_str())
        .section(first)
        .section(over_time)
        .section(Section::new("Attacks and signals").table(bouts(record)).table(kills(record)))
        .data("soak", record)
}

fn answers(record: &Record) -> LineChart {
    let every_s = record.setup.sample_every_s;
    let point = |(place, &count): (usize, &u64)| (place as f64 * every_s, count as f64 / every_s);
    let chart = LineChart::new(
        "Right answers",
        Axis::linear("time", "s").from(0.0),
        Axis::linear("answers", "1/s").from(0.0),
    )
    .series(
        Series::new("right answers").points(record.right_by_sample.iter().enumerate().map(point)),
    );
    marked(chart, record)
}

/// A chart for each plane.
fn curves(
    record: &Record,
    title: &str,
    unit: &str,
    figure: fn(Footprint) -> Option<f64>,
) -> Vec<Chart> {
    let chart = |plane: String| {
        let points = record
            .samples
            .iter()
            .filter_map(|sample| Some((sample.at_s, figure(of(sample, &plane))?)));
        let chart = LineChart::new(
            format!("{plane}: {title}"),
            Axis::linear("time", "s").from(0.0),
            Axis::linear(title, unit).from(0.0),
        )
        .series(Series::new(plane.clone()).points(points));
        Chart::from(marked(chart, record))
    };
    planes(record).into_iter().map(chart).collect()
}

fn marked(chart: LineChart, record: &Record) -> LineChart {
    if record.kills.len() > MAX_MARKS {
        return chart;
    }
    record.kills.iter().fold(chart, |chart, kill| chart.vertical(kill.at_s, kill.plane.as_str()))
}

fn bouts(record: &Record) -> Table {
    let mut table = Table::new("Attacks")
        .column("from s")
        .column("to s")
        .column("attack")
        .column("what the attackers saw");
    for bout in &record.bouts {
        let saw = match (&bout.seen, &bout.error) {
            (Some(seen), _) => seen.tally.verdict(bout.attack.kind),
            (None, error) => error.clone().unwrap_or_default(),
        };
        let (from, to) = bout.from_to_s;
        let row = [format!("{from:.1}"), format!("{to:.1}"), bout.attack.words(), saw];
        table.push(row.map(Into::into));
    }
    table
}

fn kills(record: &Record) -> Table {
    let mut table = Table::new("Signals")
        .column("at s")
        .column("plane")
        .column("process")
        .column("signal")
        .column("right again after s");
    for kill in &record.kills {
        let recovered =
            kill.recovered_s.map_or("–".to_owned(), |seconds| format!("{seconds:.2}"));
        let row = [
            format!("{:.1}", kill.at_s),
            kill.plane.clone(),
            kill.pid.to_string(),
            kill.signal.clone(),
            recovered,
        ];
        table.push(row.map(Into::into));
    }
    table
}
