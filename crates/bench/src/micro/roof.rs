//! `saccade bench micro roof`: what memory and arithmetic allow the steps of a running server.
//!
//! The server measures it in its own process, with the threads and the weights of its steps, and at
//! the moment at which it is asked: on virtual machines rates move within seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use saccade_load::{Session, Target};
use saccade_report::{Cell, Table};
use serde::{Deserialize, Serialize};

use super::numbers::within;
use super::stats::Spread;
use crate::tls_flags::TlsFlags;

/// The server answers within some seconds, or says that it was never idle.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const NOTES: [&str; 2] = [
    "Memory: the time in which the server's threads read the weights of a step of one row, without \
     a product. Products: that of a step's products with operands in caches. A step takes at least \
     the larger of the two; attention's KV and further experts come on top.",
    "Measured by the server in its own process while no request was in flight.",
];

/// Flags of `saccade bench micro roof`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// URL of a running Saccade server with --device cpu
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    base_url: String,
    /// Bearer token for the server
    #[arg(long, env = "OPENAI_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Measurements
    #[arg(long, default_value_t = 5, value_parser = within::<u32>(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    tls: TlsFlags,
}

/// What `POST /measure_roof` answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Roof {
    pub kernels: String,
    pub num_threads: u32,
    pub weight_bytes: u64,
    pub huge_page_bytes: u64,
    pub step_weight_bytes: u64,
    pub row_flops: u64,
    pub read_bytes_per_second: u64,
    pub product_flops_per_second: BTreeMap<u32, u64>,
}

/// All that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub base_url: String,
    /// One for each repeat.
    pub roofs: Vec<Roof>,
    pub notes: Vec<String>,
}

/// Has the server measure its roof.
///
/// # Errors
/// If it cannot be reached, or refuses.
pub(crate) fn measure(args: &Args) -> anyhow::Result<Report> {
    let target = Target {
        api_key: args.api_key.clone(),
        tls: args.tls.tls(),
        ..Target::new(args.base_url.clone())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let roofs = runtime.block_on(async {
        let session = Session::new(&target, 1, ANSWER_TIMEOUT).await?;
        let mut roofs = Vec::new();
        for _ in 0..args.repeats {
            let answer = session.post("/measure_roof", Vec::new().into()).await?;
            anyhow::ensure!(answer.status == 200, "{}: {}", args.base_url, answer.message());
            roofs.push(serde_json::from_slice(&answer.body).context("POST /measure_roof")?);
        }
        Ok(roofs)
    })?;
    let notes = NOTES.map(str::to_owned).to_vec();
    Ok(Report { base_url: args.base_url.clone(), roofs, notes })
}

impl Report {
    /// The machine and its memory.
    pub(crate) fn memory_table(&self) -> Table {
        let mut table = Table::new(format!("Memory and kernels of {}", self.base_url))
            .column("kernels")
            .column("threads")
            .column("weights MiB")
            .column("in huge pages %")
            .column("read GB/s P50")
            .column("min")
            .column("max");
        let Some(roof) = self.roofs.first() else { return table };
        let read = Spread::of(self.roofs.iter().map(|r| r.read_bytes_per_second as f64 * 1e-9));
        table.push([
            roof.kernels.as_str().into(),
            (roof.num_threads as usize).into(),
            Cell::Number(roof.weight_bytes as f64 / f64::from(1 << 20), 0),
            Cell::Number(100.0 * roof.huge_page_bytes as f64 / roof.weight_bytes as f64, 0),
            Cell::Number(read.p50, 1),
            Cell::Number(read.min, 1),
            Cell::Number(read.max, 1),
        ]);
        table
    }

    /// A row for each number of rows, medians of the repeats.
    pub(crate) fn steps_table(&self) -> Table {
        let mut table = Table::new("Steps at most")
            .column("rows")
            .column("products GFLOP/s")
            .column("memory ms")
            .column("products ms")
            .column("rows/s at most");
        let Some(any) = self.roofs.first() else { return table };
        for &rows in any.product_flops_per_second.keys() {
            let median = |of: &dyn Fn(&Roof) -> f64| Spread::of(self.roofs.iter().map(of)).p50;
            let rate =
                |r: &Roof| r.product_flops_per_second.get(&rows).map_or(f64::NAN, |&f| f as f64);
            let memory_s = |r: &Roof| r.step_weight_bytes as f64 / r.read_bytes_per_second as f64;
            let products_s = |r: &Roof| f64::from(rows) * r.row_flops as f64 / rate(r);
            table.push([
                (rows as usize).into(),
                Cell::Number(median(&|r| rate(r) * 1e-9), 0),
                Cell::Number(median(&|r| memory_s(r) * 1e3), 2),
                Cell::Number(median(&|r| products_s(r) * 1e3), 2),
                Cell::Number(median(&|r| f64::from(rows) / memory_s(r).max(products_s(r))), 1),
            ]);
        }
        table
    }
}
