//! The report as people read it: verdict first, then evidence.

use std::fmt::Write;

use crate::finding::{Finding, Severity};
use crate::report::{ProcessReport, Report, ServerReport, Verdict, printable};

/// Processes that are listed; helpers beyond that are counted.
const MAX_PROCESSES: usize = 16;

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    for server in &report.servers {
        // Writing to a string cannot fail.
        let _ = render_server(&mut out, server);
        out.push('\n');
    }
    for failed in &report.failed {
        let _ = writeln!(out, "not looked at: {}", printable(failed));
    }
    out
}

fn render_server(out: &mut String, server: &ServerReport) -> std::fmt::Result {
    let head = match server.verdict {
        Verdict::Healthy => "HEALTHY",
        Verdict::Unknown => "UNKNOWN",
        Verdict::Warnings => "WARNINGS",
        Verdict::Trouble => "TROUBLE",
    };
    writeln!(out, "{head}: {}", printable(&server.summary))?;
    writeln!(out, "  {}", clip(&printable(&server.command), 96))?;
    for finding in &server.findings {
        writeln!(out)?;
        render_finding(out, finding)?;
    }
    writeln!(out)?;
    render_measured(out, server)?;
    for line in &server.not_read {
        writeln!(out, "  could not read: {}", printable(line))?;
    }
    Ok(())
}

fn render_finding(out: &mut String, finding: &Finding) -> std::fmt::Result {
    writeln!(out, "  {} [{}]", finding.severity.name(), finding.id)?;
    writeln!(out, "    {}", printable(&finding.title))?;
    for evidence in &finding.evidence {
        let (what, value) = (printable(&evidence.what), printable(&evidence.value));
        writeln!(out, "    - {what}: {value}   ({})", printable(&evidence.from))?;
    }
    for loss in &finding.expected_losses {
        writeln!(out, "    expected: {}", loss.text)?;
        writeln!(out, "      measured by {}", loss.source)?;
    }
    if finding.severity == Severity::Note {
        return Ok(());
    }
    for change in &finding.change {
        writeln!(out, "    change ({}):", change.what)?;
        writeln!(out, "      {}", printable(&change.how))?;
    }
    if let Some(cost) = &finding.cost {
        writeln!(out, "    costs: {}", cost.text)?;
        writeln!(out, "      prices: {}", cost.source)?;
    }
    Ok(())
}

fn render_measured(out: &mut String, server: &ServerReport) -> std::fmt::Result {
    let m = &server.measured;
    writeln!(out, "  Watched for {:.1} s:", m.seconds)?;
    let number = |n: Option<f64>, unit: &str| {
        n.map_or_else(|| "unknown".to_owned(), |n| format!("{n:.2}{unit}"))
    };
    let share = |n: Option<f64>| number(n.map(|n| n * 100.0), " %");
    writeln!(
        out,
        "    used {} cores; waited {} of the time it wanted one ({} each time)",
        number(m.cores_used, ""),
        share(m.wait_share),
        number(m.wait_ms_per_slice, " ms"),
    )?;
    writeln!(
        out,
        "    switches per second: {} voluntary, {} involuntary; {} moves to other cores",
        number(m.voluntary_switches_per_s, ""),
        number(m.involuntary_switches_per_s, ""),
        number(m.migrations_per_s, ""),
    )?;
    writeln!(
        out,
        "    others used {} of its cores; pressure on cores: {} on the machine, {} in its cgroup",
        number(m.others_cores, ""),
        share(m.cpu_pressure),
        share(m.cgroup_cpu_pressure),
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
        writeln!(out, "    and {more} processes more")?;
    }
    Ok(())
}

fn render_process(out: &mut String, process: &ProcessReport) -> std::fmt::Result {
    let cores = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), |n| format!("{n:.2}"));
    writeln!(
        out,
        "    {:>8} {:<13} {:>4} threads, ran {} waited {}  {}",
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
