//! The record for people: a table, and a report with the heatmap and the victims' curves.

use saccade_report::{
    Axis, Cell as TableCell, Chart, Heatmap, Level, LineChart, Ramp, Report, Section, Series, Table,
};

use super::analysis::{CellResult, Speedup};
use super::record::{Attack, Record};
use crate::interference::shell_words;
use crate::output::counted;

/// The table of the terminal.
pub(super) fn table(record: &Record) -> Table {
    let mut table =
        Table::new("Mean time of victims to the first token, seconds, by cores of the server")
            .column("server")
            .column("attackers")
            .note(
                "×: a victim got no first token within the time-out in at least half of the \
                 series. Speed-up: least cores ÷ best of the others. !: series left out, because \
                 the client itself was late.",
            );
    for budget in &record.budgets {
        table = table.column(cores_words(budget.count));
    }
    table = table.column("speed-up");
    for server in &record.servers {
        for attack in attacks(record) {
            let mut row: Vec<TableCell> =
                vec![server.name.as_str().into(), attack_words(attack).into()];
            let results = record.budgets.iter().map(|budget| {
                find(record, &server.name, attack, budget.count).map_or_else(String::new, seconds)
            });
            row.extend(results.map(TableCell::from));
            row.push(
                attack.map_or(String::new(), |a| speedup_words(record, &server.name, a)).into(),
            );
            table.push(row);
        }
    }
    table
}

/// The page.
///
/// # Errors
/// The record has no JSON form.
pub(super) fn report(record: &Record) -> anyhow::Result<Report> {
    let setup = &record.setup;
    let report = Report::new("Attackers and victims")
        .subtitle("What more cores give a server whose tokenizer is busy")
        .fact("machine", record.machine.words())
        .fact("command", shell_words(&record.command))
        .fact("version", record.version.as_str())
        .fact(
            "victims",
            format!(
                "{} one by one, {} each, time-out {} s, {} s after the first attacker; {}",
                setup.victims,
                counted(setup.victim_prompt_tokens as usize, "token"),
                setup.timeout_s,
                setup.lead_s,
                counted(setup.repeats, "repeat")
            ),
        )
        .fact("client's priority", record.client.priority.to_string())
        .fact("schema", record.schema.as_str());
    let mut first = Section::new("Speed-up of more cores over the least");
    for (level, title, words) in warnings(record) {
        first = first.callout(level, title, words);
    }
    for server in &record.servers {
        first = first.chart(heatmap(record, &server.name));
    }
    let curves = Section::new("Victims by their place in the series")
        .paragraph("Position 0 is the mean of the baseline without attackers.")
        .side_by_side(by_position(record));
    let lengths =
        Section::new("Victims by the attackers' prompt length").side_by_side(by_length(record));
    report
        .section(first.table(table(record)))
        .section(curves)
        .section(lengths)
        .data("attack", record)
}

/// What must not be overlooked.
pub(super) fn warnings(record: &Record) -> Vec<(Level, String, String)> {
    let mut found = Vec::new();
    let failed: Vec<_> = record.series.iter().filter(|series| series.error.is_some()).collect();
    if let Some(first) = failed.first() {
        let words = format!("The first: {}", first.error.as_deref().unwrap_or_default());
        found.push((Level::Bad, format!("{} series could not be measured", failed.len()), words));
    }
    let late: Vec<_> = record.series.iter().filter(|series| !series.distrust.is_empty()).collect();
    if let Some(first) = late.first() {
        let words = format!("The first: {}", first.distrust.join("; "));
        found.push((
            Level::Warning,
            match record.is_version_1() {
                true => format!("The client was late in {} series, which count", late.len()),
                false => format!("{} series left out: the client itself was late", late.len()),
            },
            words,
        ));
    }
    let shared = record.series.iter().filter(|series| {
        let budget = record.budgets.iter().find(|budget| budget.count == series.cores);
        budget.is_some_and(|budget| !series.client_cores.and(&budget.cores).is_empty())
    });
    let shared = shared.count();
    if shared > 0 {
        found.push((
            Level::Info,
            format!("The client shared cores with the server in {shared} series"),
            "The budget leaves no core for the client: its own work is a part of the load.".into(),
        ));
    }
    let bound: Vec<&str> = record
        .servers
        .iter()
        .filter(|server| server.start.is_none())
        .map(|server| server.name.as_str())
        .collect();
    if !bound.is_empty() {
        found.push((
            Level::Info,
            format!("{} kept running and was bound to each budget", bound.join(", ")),
            "Thread pools take their size at the start: use --start to start it on its cores."
                .into(),
        ));
    }
    found
}

pub(super) fn cores_words(count: usize) -> String {
    counted(count, "core")
}

fn attacks(record: &Record) -> impl Iterator<Item = Option<Attack>> {
    std::iter::once(None).chain(record.attacks.iter().copied().map(Some))
}

pub(super) fn attack_words(attack: Option<Attack>) -> String {
    attack.map_or("none".to_owned(), |attack| {
        let tokens = counted(attack.prompt_tokens as usize, "token");
        format!("{}/s of {tokens}", attack.rate_rps)
    })
}

fn find<'a>(
    record: &'a Record,
    server: &str,
    attack: Option<Attack>,
    cores: usize,
) -> Option<&'a CellResult> {
    record
        .cells
        .iter()
        .find(|cell| cell.server == server && cell.attack == attack && cell.cores == cores)
        .filter(|cell| cell.series + cell.untrusted_series > 0)
}

fn seconds(cell: &CellResult) -> String {
    let late = if cell.untrusted_series > 0 { " !" } else { "" };
    match (cell.timed_out(), cell.ttft_mean_s, cell.ttft_std_s) {
        (true, ..) => "×".to_owned(),
        (_, None, _) => late.trim().to_owned(),
        (_, Some(mean), None) => format!("{mean:.3}{late}"),
        (_, Some(mean), Some(std)) => format!("{mean:.3} ± {std:.3}{late}"),
    }
}

fn speedup_words(record: &Record, server: &str, attack: Attack) -> String {
    match speedup(record, server, attack) {
        Speedup::Times { value, cores } => format!("{value:.2}× ({cores})"),
        Speedup::LeastTimesOut { cores } => format!("∞ ({cores})"),
        Speedup::AllTimeOut => "×".to_owned(),
        Speedup::NotMeasured => String::new(),
    }
}

fn speedup(record: &Record, server: &str, attack: Attack) -> Speedup {
    let found = record.speedups.iter().find(|s| s.server == server && s.attack == attack);
    found.map_or(Speedup::NotMeasured, |found| found.speedup)
}

fn heatmap(record: &Record, server: &str) -> Heatmap {
    let (rates, lengths) = (rates(record), lengths(record));
    let values = rates
        .iter()
        .map(|&rate_rps| {
            let at = |&prompt_tokens: &u32| {
                speedup(record, server, Attack { rate_rps, prompt_tokens }).as_number()
            };
            lengths.iter().map(at).collect()
        })
        .collect();
    let least = record.budgets.first().map_or(0, |budget| budget.count);
    Heatmap::new(
        format!("Best speed-up over {}: {server}", cores_words(least)),
        ("attackers' prompt tokens", lengths.iter().map(u32::to_string).collect()),
        ("rate (1/s)", rates.iter().map(f64::to_string).collect()),
        values,
    )
    .ramp(Ramp::DivergingLog { centre: 1.0 })
    .values_are("speed-up", "×", 2)
    .note("∞: victims timed out with the least cores only; –: with any number of cores.")
}

fn rates(record: &Record) -> Vec<f64> {
    let mut rates: Vec<f64> = record.attacks.iter().map(|attack| attack.rate_rps).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

fn lengths(record: &Record) -> Vec<u32> {
    let mut lengths: Vec<u32> = record.attacks.iter().map(|attack| attack.prompt_tokens).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// A chart for each server and attack, a line for each budget.
fn by_position(record: &Record) -> Vec<Chart> {
    let mut charts = Vec::new();
    for server in &record.servers {
        for &attack in &record.attacks {
            let mut chart = LineChart::new(
                format!("{}: {}", server.name, attack_words(Some(attack))),
                Axis::whole("victim", "").from(0.0),
                Axis::log("TTFT", "s"),
            );
            for (slot, budget) in record.budgets.iter().enumerate() {
                let alone = find(record, &server.name, None, budget.count);
                let under = find(record, &server.name, Some(attack), budget.count);
                let name = cores_words(budget.count);
                chart = chart.series(curve(name, alone, under).slot(slot));
            }
            charts.push(chart.into());
        }
    }
    charts
}

fn curve(name: String, alone: Option<&CellResult>, under: Option<&CellResult>) -> Series {
    let band = |x: f64, mean: Option<f64>, std: Option<f64>| {
        let (mean, std) = (mean?, std.unwrap_or(0.0));
        // A logarithmic axis has no zero.
        Some((x, mean, (mean - std).max(mean * 0.1), mean + std))
    };
    let baseline = alone.and_then(|cell| band(0.0, cell.ttft_mean_s, cell.ttft_std_s));
    let positions = under.map(|cell| cell.positions.as_slice()).unwrap_or_default();
    let points =
        positions.iter().filter_map(|p| band(p.position as f64, p.ttft_mean_s, p.ttft_std_s));
    let series = Series::new(name).band(baseline.into_iter().chain(points)).whiskers();
    let timed_out = positions.iter().filter(|p| p.timed_out > 0);
    timed_out.fold(series, |series, p| series.timed_out(p.position as f64))
}

/// A chart for each server and rate, a line for each budget.
fn by_length(record: &Record) -> Vec<Chart> {
    let mut charts = Vec::new();
    for server in &record.servers {
        for rate_rps in rates(record) {
            let mut chart = LineChart::new(
                format!("{}: {rate_rps} attackers per second", server.name),
                Axis::log("attackers' prompt", "tokens"),
                Axis::log("TTFT, mean of victims", "s"),
            );
            for (slot, budget) in record.budgets.iter().enumerate() {
                let mut series = Series::new(cores_words(budget.count)).slot(slot);
                for prompt_tokens in lengths(record) {
                    let attack = Some(Attack { rate_rps, prompt_tokens });
                    let x = f64::from(prompt_tokens);
                    match find(record, &server.name, attack, budget.count) {
                        Some(cell) if cell.timed_out() => series = series.timed_out(x),
                        Some(cell) => {
                            series = series.points(cell.ttft_mean_s.map(|mean| (x, mean)));
                        }
                        None => {}
                    }
                }
                chart = chart.series(series);
            }
            charts.push(chart.into());
        }
    }
    charts
}
