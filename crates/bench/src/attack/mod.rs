//! `saccade bench attack`: requests with short prompts (victims) behind many with long ones
//! (attackers), by the number of cores that the server has. Where more cores bring the victims'
//! times down, the server was short of cores, not of its accelerator. With `--attacks`: victims
//! beside attackers of other kinds, on the cores that the server has.

mod analysis;
pub(crate) mod beside;
mod budgets;
mod present;
mod quiet;
mod record;
mod series;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use saccade_host::{CpuSet, Root};
use saccade_report::Report;

use crate::interference::{
    Client, ClientFlags, Machine, Plan, ServerFlags, ServerRecord, ServerSpec, command_line, told,
    unix_s,
};
use crate::output;
use beside::BesideFlags;
use budgets::BudgetFlags;
pub(crate) use record::SCHEMAS;
use record::{Attack, Record, Setup};
use series::{Experiment, Unit};

/// Flags of `saccade bench attack`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten, next_help_heading = "Servers")]
    servers: ServerFlags,
    #[command(flatten, next_help_heading = "Cores")]
    budgets: BudgetFlags,
    /// Cores to give to the server, the first ones first [default: the cores of this process]
    #[arg(long, value_name = "CORES", value_parser = CpuSet::from_flag, help_heading = "Cores",
        conflicts_with = "attacks")]
    out_of_cores: Option<CpuSet>,
    #[command(flatten, next_help_heading = "Attackers and victims")]
    load: LoadFlags,
    #[command(flatten, next_help_heading = "Attackers of other kinds")]
    beside: BesideFlags,
    #[command(flatten, next_help_heading = "Client")]
    client: ClientFlags,
    /// Measurements of each series
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Experiment",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Longest wait after a series until the server is quiet; a started server that is not is
    /// started again
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, help_heading = "Experiment")]
    drain: f64,
    /// Seed of prompts and of the order of series
    #[arg(long, default_value_t = 0, help_heading = "Experiment")]
    seed: u64,
    /// Write the record as JSON, again after each series
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    json: Option<PathBuf>,
    /// Write a page with a heatmap and curves
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
}

/// The attackers' and the victims' requests. Prompts are text: tokenizing them is the attack.
#[derive(Debug, Clone, clap::Args)]
struct LoadFlags {
    /// Attackers per second, spaced evenly
    #[arg(
        long,
        value_name = "RPS,…",
        value_delimiter = ',',
        default_value = "8,16",
        conflicts_with = "attacks"
    )]
    attack_rate: Vec<f64>,
    /// Tokens of an attacker's prompt
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1800,7200,28500,114000",
        conflicts_with = "attacks"
    )]
    attack_len: Vec<u32>,
    /// Tokens of an attacker's answer
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "attacks")]
    attack_output_len: u32,
    /// Victims in each series, one after the other
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "attacks",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    victims: u32,
    /// Tokens of a victim's prompt [default: 2800; with --attacks 128]
    #[arg(long, value_name = "N")]
    victim_len: Option<u32>,
    /// Tokens of a victim's answer [default: 1; with --attacks 64]
    #[arg(long, value_name = "N")]
    victim_output_len: Option<u32>,
    /// Time from the first attacker to the first victim
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    lead: f64,
    /// Time after which a victim without a first token counts as timed out, which is a result
    /// [default: 200; with --attacks 60, of the whole answer]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

impl LoadFlags {
    /// Of the series; see [`beside`] for the defaults beside other attackers.
    fn timeout_s(&self) -> f64 {
        self.timeout.unwrap_or(200.0)
    }
}

/// Longest lead, time-out or drain: an hour.
const MAX_SECONDS: f64 = 3600.0;

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        let seconds = [
            ("--lead", self.load.lead, 0.0),
            ("--timeout", self.load.timeout_s(), 0.001),
            ("--drain", self.drain, 0.0),
        ];
        for (flag, value, least) in seconds {
            ensure!(
                (least..=MAX_SECONDS).contains(&value),
                "{flag}: {value} is outside {least} .. {MAX_SECONDS} s"
            );
        }
        let mut rates = self.load.attack_rate.iter();
        ensure!(
            rates.all(|rate| *rate > 0.0 && *rate <= 1e5),
            "--attack-rate: rates must lie above 0 and at most at 100000 per second"
        );
        ensure!(!self.load.attack_len.contains(&0), "--attack-len: must be at least 1");
        output::check_writable("--json", self.json.as_deref())?;
        output::check_writable("--html", self.html.as_deref())?;
        Ok(())
    }

    fn attacks(&self) -> Vec<Attack> {
        let lengths = || self.load.attack_len.iter();
        let of = |&rate_rps: &f64| {
            lengths().map(move |&prompt_tokens| Attack { rate_rps, prompt_tokens })
        };
        self.load.attack_rate.iter().flat_map(of).collect()
    }

    fn setup(&self) -> Setup {
        let load = &self.load;
        Setup {
            victims: load.victims as usize,
            victim_prompt_tokens: load.victim_len.unwrap_or(2800),
            victim_output_tokens: load.victim_output_len.unwrap_or(1),
            attack_output_tokens: load.attack_output_len,
            lead_s: load.lead,
            timeout_s: load.timeout_s(),
            repeats: self.repeats as usize,
            seed: self.seed,
        }
    }
}

/// Runs it. The exit status is 1 if a series could not be measured; time-outs are results.
///
/// # Errors
/// Flags out of bounds, fewer cores than a budget needs, a file that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.check()?;
    if !args.beside.attacks.is_empty() {
        return beside::run(args);
    }
    let specs = args.servers.specs()?;
    let (mut record, mut experiment) = prepare(args, specs)?;
    let units = record.servers.len() * record.budgets.len();
    let plan = Plan {
        servers: units,
        conditions: experiment.attacks.len(),
        repeats: record.setup.repeats,
        seed: record.setup.seed,
        in_turns: true,
    };
    let order = plan.order();
    for (index, slot) in order.iter().enumerate() {
        let budgets = record.budgets.len();
        let unit = Unit { server: slot.server / budgets, budget: slot.server % budgets };
        let series = experiment.measure(index, slot.repeat, unit, slot.condition);
        let head = format!("[{}/{}] ", index + 1, order.len());
        eprintln!("{}", told(&(head + &line(&series))));
        record.series.push(series);
        note_servers(&experiment, &mut record);
        analysis::analyse(&mut record);
        args.json.as_ref().map_or(Ok(()), |path| output::write_json(path, &record))?;
    }
    experiment.end()?;
    print!("{}", present::table(&record).to_text());
    for (_, title, words) in present::warnings(&record) {
        println!("\n{}", told(&format!("{title}. {words}")));
    }
    if let Some(path) = &args.html {
        output::write_page(path, &present::report(&record)?)?;
    }
    let failed = record.series.iter().any(|series| series.error.is_some());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The page of a record, from its JSON.
///
/// # Errors
/// It is not of one of [`SCHEMAS`].
pub(crate) fn page_of(json: &str) -> anyhow::Result<Report> {
    present::report(&serde_json::from_str(json)?)
}

fn prepare(args: &Args, specs: Vec<ServerSpec>) -> anyhow::Result<(Record, Experiment)> {
    let usable = CpuSet::of_task(0)?;
    let out_of = args.out_of_cores.as_ref().unwrap_or(&usable);
    out_of.check_usable().map_err(|e| anyhow::anyhow!("--out-of-cores: {e}"))?;
    let budgets = args.budgets.budgets(out_of)?;
    let client = Client::settle(&args.client)?;
    let attacks = args.attacks();
    let record = Record {
        schema: SCHEMAS[0].into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: unix_s(),
        command: command_line(),
        machine: Machine::read(&Root::default()),
        client: client.clone(),
        setup: args.setup(),
        servers: specs.iter().map(ServerRecord::of).collect(),
        budgets: budgets.clone(),
        attacks: attacks.clone(),
        series: Vec::new(),
        cells: Vec::new(),
        speedups: Vec::new(),
    };
    let conditions = std::iter::once(None).chain(attacks.into_iter().map(Some)).collect();
    let experiment = Experiment::new(
        specs,
        budgets,
        conditions,
        args.setup(),
        (client, args.client.client_cores.clone()),
        Duration::from_secs_f64(args.drain),
    )?;
    Ok((record, experiment))
}

fn note_servers(experiment: &Experiment, record: &mut Record) {
    for (i, server) in record.servers.iter_mut().enumerate() {
        server.startup_s.clone_from(&experiment.startups_s[i]);
        if experiment.models[i].is_some() {
            server.model.clone_from(&experiment.models[i]);
        }
    }
}

/// One series in one line.
fn line(series: &record::Series) -> String {
    let head = format!(
        "repeat {}, {}, {}, attackers: {}",
        series.repeat + 1,
        series.server,
        present::cores_words(series.cores),
        present::attack_words(series.attack)
    );
    if let Some(error) = &series.error {
        return format!("{head}: {error}");
    }
    let times: Vec<String> = series
        .victims
        .iter()
        .map(|victim| match victim.ttft_s {
            Some(seconds) => format!("{seconds:.3}"),
            None => format!("× ({})", victim.outcome.kind()),
        })
        .collect();
    let late = if series.distrust.is_empty() { "" } else { " (client late: left out)" };
    format!("{head}: TTFT of victims {} s{late}", times.join(", "))
}
