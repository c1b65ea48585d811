//! Where results go: tables on the screen, one JSON document, one HTML page.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use saccade_host::CpuSet;
use serde::Serialize;

use super::{broadcast, page, straggler, tokenize};

/// Name and version of the document. Fields may be added within a version.
pub(crate) const SCHEMA: &str = "saccade.bench.micro/1";

/// Flags of where results go.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Writes a JSON document; `-` is the standard output, which then has no tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes a self-contained page with tables and plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The machine that measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Host {
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    pub kernel: String,
    /// Load average over one minute when the measurement began.
    pub load_1m: f64,
}

impl Host {
    /// What `/proc` says; what it does not say is empty.
    pub(crate) fn of_this_machine() -> Host {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
        let load = read("/proc/loadavg");
        Host {
            cpu: model.unwrap_or_default().into(),
            cores: CpuSet::of_task(0).map_or(0, |cores| cores.len()),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load_1m: load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or_default(),
        }
    }
}

/// All results of one call.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub schema: &'static str,
    pub version: &'static str,
    pub host: Host,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<tokenize::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<broadcast::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<straggler::Report>,
    /// What was asked for and not measured, and why.
    pub skipped: Vec<String>,
    /// Why the figures may not mean what they seem to.
    pub warnings: Vec<&'static str>,
}

/// Of a build with debug assertions.
const DEBUG_BUILD: &str = "a debug build measured this: encoding, decoding and tokenizing are many \
     times slower than in a release build";

impl Document {
    pub(crate) fn new() -> Document {
        Document {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            host: Host::of_this_machine(),
            tokenize: None,
            broadcast: None,
            straggler: None,
            skipped: Vec::new(),
            warnings: if cfg!(debug_assertions) { vec![DEBUG_BUILD] } else { Vec::new() },
        }
    }

    fn text(&self) -> String {
        let mut blocks = Vec::new();
        let mut add = |tables: Vec<saccade_report::Table>, notes: &[&str]| {
            blocks.extend(tables.iter().map(saccade_report::Table::to_text));
            blocks.extend(notes.iter().map(|note| format!("{note}\n")));
        };
        if let Some(report) = &self.tokenize {
            add([Some(report.table()), report.server_table()].into_iter().flatten().collect(), &[]);
            add(vec![], &report.warnings.iter().map(String::as_str).collect::<Vec<_>>());
            add(vec![], &report.notes);
        }
        if let Some(report) = &self.broadcast {
            add(vec![report.table(), report.ratio_table()], &report.notes);
        }
        if let Some(report) = &self.straggler {
            add(vec![report.table()], &report.notes);
        }
        blocks.extend(self.skipped.iter().map(|why| format!("skipped: {why}\n")));
        blocks.extend(self.warnings.iter().map(|warning| format!("warning: {warning}\n")));
        blocks.join("\n")
    }

    /// Prints and writes it as the flags say.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn put_out(&self, args: &Args) -> anyhow::Result<()> {
        let to_stdout = args.json.as_deref() == Some(Path::new("-"));
        if let Some(path) = &args.json {
            let json = serde_json::to_string_pretty(self)? + "\n";
            if to_stdout {
                std::io::stdout().write_all(json.as_bytes()).context("write to stdout")?;
            } else {
                std::fs::write(path, json).with_context(|| format!("--json {}", path.display()))?;
            }
        }
        if !to_stdout {
            std::io::stdout().write_all(self.text().as_bytes()).context("write to stdout")?;
        }
        if let Some(path) = &args.html {
            page::of(self)?.write(path).with_context(|| format!("--html {}", path.display()))?;
        }
        Ok(())
    }
}
