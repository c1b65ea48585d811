//! The report as people read it: three lines for each server, or everything.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::finding::{Finding, Severity};
use crate::report::{ProcessReport, Report, ServerReport, Verdict, printable};
use crate::words::plural;

/// Processes that are listed; helpers beyond that are counted.
const MAX_PROCESSES: usize = 16;

/// Three lines for each server: the verdict, what was measured, what to change.
pub fn brief(report: &Report) -> String {
    let mut out = String::new();
    for server in &report.servers {
        let _ = writeln!(out, "{}", verdict(server));
        let _ = writeln!(out, "  {}", measured(server));
        let _ = writeln!(out, "  {} Evidence: --verbose.", to_do(server));
    }
    out + &failed(report)
}

/// Every finding with its evidence, remedies and prices.
pub fn full(report: &Report) -> String {
    let mut out = String::new();
    for server in &report.servers {
        // Writing to a string cannot fail.
        let _ = render_server(&mut out, server);
        out.push('\n');
    }
    out + &failed(report)
}

fn failed(report: &Report) -> String {
    let line = |failed: &String| format!("not examined: {}\n", printable(failed));
    report.failed.iter().map(line).collect()
}

fn verdict(server: &ServerReport) -> String {
    let head = match server.verdict {
        Verdict::Healthy => "HEALTHY",
        Verdict::Unknown => "UNKNOWN",
        Verdict::Warnings => "WARNINGS",
        Verdict::Trouble => "TROUBLE",
    };
    format!("{head}: {}", printable(&server.summary))
}

fn measured(server: &ServerReport) -> String {
    let m = &server.measured;
    format!(
        "In {:.1} s it used {} cores and waited {} of the time that it wanted one; of its cores, \
         others used {}.",
        m.seconds,
        m.cores_used.map_or_else(|| "an unknown number of".to_owned(), |n| format!("{n:.2}")),
        share(m.wait_share),
        m.others_cores.map_or_else(|| "an unknown number".to_owned(), |n| format!("{n:.2}")),
    )
}

/// The first change of the worst finding that has one, with its price.
fn to_do(server: &ServerReport) -> String {
    if server.verdict == Verdict::Unknown {
        let why = server.not_read.first().map_or("the kernel does not say", String::as_str);
        return format!("Could not read: {}.", printable(why));
    }
    let alarms = || server.findings.iter().filter(|f| f.severity > Severity::Note);
    let Some((finding, change)) = alarms().find_map(|f| Some((f, f.change.first()?))) else {
        return match alarms().count() {
            0 => "Nothing to change.".to_owned(),
            _ => "No setting of this machine changes that.".to_owned(),
        };
    };
    let mut text = format!("Change ({}): {}", printable(&change.what), printable(&change.how));
    if let Some(cost) = &finding.cost {
        let _ = write!(text, "; {}", cost.text);
    }
    match alarms().count() - 1 {
        0 => text + ".",
        1 => text + ". 1 more finding.",
        more => format!("{text}. {more} more findings."),
    }
}

fn share(n: Option<f64>) -> String {
    n.map_or_else(|| "an unknown share".to_owned(), |n| format!("{:.1} %", n * 100.0))
}

fn render_server(out: &mut String, server: &ServerReport) -> std::fmt::Result {
    writeln!(out, "{}", verdict(server))?;
    writeln!(out, "  {}", clip(&printable(&server.command), 96))?;
    // What two findings ask for is printed with the worse one.
    let mut said = BTreeSet::new();
    for finding in &server.findings {
        writeln!(out)?;
        render_finding(out, finding, &mut said)?;
    }
    writeln!(out)?;
    render_measured(out, server)?;
    for line in &server.not_read {
        writeln!(out, "  could not read: {}", printable(line))?;
    }
    Ok(())
}

fn render_finding<'a>(
    out: &mut String,
    finding: &'a Finding,
    said: &mut BTreeSet<&'a str>,
) -> std::fmt::Result {
    writeln!(out, "  {} [{}]", finding.severity.name(), finding.id)?;
    writeln!(out, "    {}", printable(&finding.title))?;
    for evidence in &finding.evidence {
        let (what, value) = (printable(&evidence.what), printable(&evidence.value));
        writeln!(out, "    - {what}: {value}   ({})", printable(&evidence.from))?;
    }
    for loss in finding.expected_losses.iter().filter(|loss| said.insert(&loss.text)) {
        writeln!(out, "    expected: {}", loss.text)?;
        writeln!(out, "      measured by {}", loss.source)?;
    }
    if finding.severity == Severity::Note {
        return Ok(());
    }
    for change in finding.change.iter().filter(|change| said.insert(&change.how)) {
        writeln!(out, "    change ({}):", printable(&change.what))?;
        writeln!(out, "      {}", printable(&change.how))?;
    }
    if let Some(cost) = finding.cost.as_ref().filter(|cost| said.insert(&cost.text)) {
        writeln!(out, "    costs: {}", cost.text)?;
        writeln!(out, "      prices: {}", cost.source)?;
    }
    Ok(())
}

fn render_measured(out: &mut String, server: &ServerReport) -> std::fmt::Result {
    let m = &server.measured;
    let rate = |n: Option<f64>| n.map_or_else(|| "unknown".to_owned(), |n| format!("{n:.0}"));
    let each = m.wait_ms_per_slice.map(|ms| format!(" ({ms:.2} ms each time)")).unwrap_or_default();
    writeln!(out, "  {}", measured(server))?;
    writeln!(
        out,
        "    waiting: {}{each}; pressure on cores: {} on the machine, {} in its cgroup",
        share(m.wait_share),
        share(m.cpu_pressure),
        share(m.cgroup_cpu_pressure),
    )?;
    writeln!(
        out,
        "    switches per second: {} voluntary, {} involuntary; {} moves to other cores",
        rate(m.voluntary_switches_per_s),
        rate(m.involuntary_switches_per_s),
        rate(m.migrations_per_s),
    )?;
    if let Some(requests) = &m.requests {
        let (running, waiting) = (requests.running, requests.waiting);
        writeln!(out, "    requests: {running} running, {waiting} waiting ({})", requests.source)?;
    }
    if let Some(ipc) = m.counters.as_ref().and_then(|c| c.instructions_per_cycle) {
        writeln!(out, "    {ipc:.2} instructions per cycle")?;
    }
    if server.gpus > 0 {
        writeln!(out, "    GPUs: {} ({})", server.gpus, server.gpus_known_by)?;
    }
    for process in server.processes.iter().take(MAX_PROCESSES) {
        render_process(out, process)?;
    }
    if let Some(more) = server.processes.len().checked_sub(MAX_PROCESSES).filter(|&n| n > 0) {
        writeln!(out, "    and {} more", plural(more as f64, "process"))?;
    }
    Ok(())
}

fn render_process(out: &mut String, process: &ProcessReport) -> std::fmt::Result {
    let cores = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), |n| format!("{n:.2}"));
    writeln!(
        out,
        "    {:>8} {:<13} threads {:>4}, ran {}, waited {}: {}",
        process.pid,
        process.role,
        process.threads.map_or_else(|| "?".to_owned(), |n| n.to_string()),
        cores(process.cores_used),
        cores(process.cores_waited_for),
        process.name,
    )
}

fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
