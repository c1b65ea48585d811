//! Where results go: tables on the screen, one JSON document, one HTML page.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use saccade_host::CpuSet;
use serde::{Deserialize, Serialize};

use super::{broadcast, page, roof, straggler, tokenize};
use crate::output::{check_writable, is_stdout, wrapped, write_json, write_page};

/// Name and version of the document that is written, and all that are read. Fields may be added
/// within a version. Version 1 had no spread of tokenization, and a device-driven time that was its
/// own parameter.
pub(crate) const SCHEMAS: [&str; 2] = ["saccade.bench-micro.v2", "saccade.bench.micro/1"];

/// Flags of where results go.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Write the results as JSON; - writes them to the standard output, and nothing else there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    /// Checks that the files can be written, before anything is measured.
    ///
    /// # Errors
    /// Names the flag and the file.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        check_writable("--json", self.json.as_deref())?;
        check_writable("--html", self.html.as_deref())
    }
}

/// The machine that measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Host {
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    pub kernel: String,
    /// Load average over one minute when the measurement began.
    pub load_1m: f64,
}

impl Host {
    /// From `/proc`; what it does not have is empty.
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
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    pub schema: String,
    pub version: String,
    pub host: Host,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<tokenize::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<broadcast::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<straggler::Report>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roof: Option<roof::Report>,
    /// What was asked for and not measured, and why.
    pub skipped: Vec<String>,
    /// Why the figures may not mean what they seem to.
    pub warnings: Vec<String>,
}

/// The warning of a build with debug assertions.
const DEBUG_BUILD: &str = "a debug build measured this: encoding, decoding and tokenizing are many \
     times slower than in a release build";

impl Document {
    pub(crate) fn new() -> Document {
        Document {
            schema: SCHEMAS[0].into(),
            version: env!("CARGO_PKG_VERSION").into(),
            host: Host::of_this_machine(),
            tokenize: None,
            broadcast: None,
            straggler: None,
            roof: None,
            skipped: Vec::new(),
            warnings: cfg!(debug_assertions).then(|| DEBUG_BUILD.to_owned()).into_iter().collect(),
        }
    }

    fn text(&self) -> String {
        let mut blocks = Vec::new();
        let mut add = |tables: Vec<saccade_report::Table>, notes: &[String]| {
            blocks.extend(tables.iter().map(saccade_report::Table::to_text));
            blocks.extend(notes.iter().map(|note| wrapped(note, 0) + "\n"));
        };
        if let Some(report) = &self.tokenize {
            let tables = [Some(report.table()), report.server_table()];
            add(tables.into_iter().flatten().collect(), &report.warnings);
            add(vec![], &report.notes);
        }
        if let Some(report) = &self.broadcast {
            add(vec![report.table(), report.ratio_table()], &report.notes);
        }
        if let Some(report) = &self.straggler {
            add(vec![report.table()], &report.notes);
        }
        if let Some(report) = &self.roof {
            add(vec![report.memory_table(), report.steps_table()], &report.notes);
        }
        let told = |kind: &str, words: &String| wrapped(&format!("{kind}: {words}"), 2) + "\n";
        blocks.extend(self.skipped.iter().map(|why| told("skipped", why)));
        blocks.extend(self.warnings.iter().map(|warning| told("warning", warning)));
        blocks.join("\n")
    }

    /// Prints and writes it as the flags say.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn put_out(&self, args: &Args) -> anyhow::Result<()> {
        if let Some(path) = &args.json {
            write_json(path, self)?;
        }
        if !args.json.as_deref().is_some_and(is_stdout) {
            let text = self.text();
            std::io::stdout().write_all(text.as_bytes()).context("write to the standard output")?;
        }
        args.html.as_ref().map_or(Ok(()), |path| write_page(path, &page::of(self)?))
    }
}
