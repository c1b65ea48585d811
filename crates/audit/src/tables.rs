//! The finding as tables, for terminals and for the page.

use saccade_report::{Cell, Table, grouped};

use crate::result::{Audit, Band, Cost, Finding, Goal, PERCENTILES};

/// Percentiles by group, the overall one first.
pub fn percentiles(audit: &Audit, title: &str, groups: &[Finding], most: usize) -> Table {
    let mut table = Table::new(format!("Cores per GPU, weighted by GPU hours, by {title}"))
        .column(title)
        .column("jobs")
        .column("GPU hours");
    for p in PERCENTILES {
        table = table.column(format!("P{}", p / 100));
    }
    let mut shown: Vec<&Finding> = vec![&audit.overall];
    shown.extend(groups.iter().take(most));
    for finding in shown {
        let head = [
            finding.name.clone().into(),
            finding.jobs.into(),
            Cell::Number(finding.gpu_hours, hour_decimals(finding.gpu_hours)),
        ];
        let values = finding.percentiles.values().map(|v| Cell::Number(*v, 3));
        table.push(head.into_iter().chain(values));
    }
    match groups.len().saturating_sub(most) {
        0 => table,
        n => table.note(format!("Not shown, with fewer GPU hours: {n}. --json has all.")),
    }
}

/// GPU hours by how few cores they had.
pub fn bands(audit: &Audit) -> Table {
    let mut table = Table::new("GPU hours by how few cores they had")
        .column("cores")
        .column("GPU hours")
        .column("share (%)")
        .column("and below (%)")
        .column("expected of LLM serving")
        .column("measured in");
    for band in &audit.bands {
        table.push([
            band.title.clone().into(),
            Cell::Number(band.gpu_hours, hour_decimals(band.gpu_hours)),
            Cell::Number(band.share * 100.0, 1),
            Cell::Number(band.share_below * 100.0, 1),
            band.expected.into(),
            band.source.into(),
        ]);
    }
    table.note("Each row without the hours of the rows above it.")
}

/// The same for a terminal, where whole sentences do not fit into cells.
pub fn bands_short(audit: &Audit) -> Table {
    let mut table = Table::new("GPU hours by how few cores they had")
        .column("cores")
        .column("GPU hours")
        .column("share (%)")
        .column("and below (%)")
        .column("TTFT of LLM serving, times");
    for band in &audit.bands {
        table.push([
            band.title.clone().into(),
            Cell::Number(band.gpu_hours, hour_decimals(band.gpu_hours)),
            Cell::Number(band.share * 100.0, 1),
            Cell::Number(band.share_below * 100.0, 1),
            band.expected_ttft.into(),
        ]);
    }
    table
}

/// What was measured with so few cores, as sentences.
pub fn sources(bands: &[Band]) -> String {
    bands.iter().map(|b| format!("{}: {}. [{}]\n", b.title, b.expected, b.source)).collect()
}

/// What enough cores cost.
pub fn cost(cost: &Cost) -> Table {
    let mut table = Table::new("What enough cores would have cost")
        .column("goal")
        .column("missing core hours")
        .column("USD, low")
        .column("USD, high")
        .column("of the GPUs' price (%)");
    for goal in &cost.goals {
        table.push([
            format!("{} cores per GPU for every job", goal.cores_per_gpu).into(),
            Cell::Number(goal.core_hours, hour_decimals(goal.core_hours)),
            Cell::Number(goal.usd.0, 2),
            Cell::Number(goal.usd.1, 2),
            relative(cost, goal),
        ]);
    }
    table.note(priced(cost))
}

/// The price of a goal against that of the GPUs, where all of them have one.
fn relative(cost: &Cost, goal: &Goal) -> Cell {
    if cost.gpu_usd > 0.0 && cost.unpriced_gpu_hours == 0.0 {
        let percent = |usd: f64| grouped(usd / cost.gpu_usd * 100.0, 2);
        format!("{} to {}", percent(goal.usd.0), percent(goal.usd.1)).into()
    } else {
        Cell::Missing
    }
}

fn priced(cost: &Cost) -> String {
    let mut text =
        format!("A core hour: {} to {} USD [{}].", cost.core.low, cost.core.high, cost.core.source);
    if cost.gpu_usd > 0.0 {
        text.push_str(&format!(
            " GPU hours with a known price: {} USD, of which {} USD with fewer than 4 cores per \
             GPU.",
            grouped(cost.gpu_usd, 2),
            grouped(cost.gpu_usd_at_risk, 2)
        ));
    }
    for (model, price) in &cost.gpu_prices {
        text.push_str(&format!(" {model}: {} USD/h [{}].", price.price, price.source));
    }
    if cost.unpriced_gpu_hours > 0.0 {
        text.push_str(&format!(
            " No price is known for {} GPU hours: see --prices and --price-gpu.",
            grouped(cost.unpriced_gpu_hours, 1)
        ));
    }
    text
}

/// Rows read, and why some do not count.
pub fn rows(audit: &Audit) -> Table {
    let rows = &audit.rows;
    let mut table = Table::new("Rows").column("rows").column("what became of them");
    table.push([rows.read.into(), "read".into()]);
    table.push([rows.counted.into(), "counted".into()]);
    for (reason, count) in &rows.skipped {
        table.push([(*count).into(), format!("left out: {reason}").into()]);
    }
    for (reason, count) in &rows.rejected {
        table.push([(*count).into(), format!("NOT READABLE: {reason}").into()]);
    }
    table
}

/// Decimals that a number of hours deserves.
pub fn hour_decimals(hours: f64) -> usize {
    if hours < 100.0 { 2 } else { 0 }
}
