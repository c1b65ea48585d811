//! `saccade bench attack --attacks …`: well-behaved victims without attackers and beside each kind
//! of them, in turn, on any server with the OpenAI API.

mod analysis;
mod present;
mod record;
mod session;

use std::process::ExitCode;

use anyhow::ensure;
use saccade_host::Root;
use saccade_report::Report;

use super::Args;
use crate::attackers::{Chosen, choose};
use crate::interference::{
    Client, Machine, Plan, ServerRecord, ServerSpec, command_line, told, unix_s,
};
use crate::output;
pub(crate) use record::SCHEMAS;
use record::{Pair, Record, Setup};
use session::{Keys, Session};

/// Attackers of every kind, and their victims.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct BesideFlags {
    /// Attacks, or all: crowd, stalled, trickle, priority, slo, one-byte-chunks, large-bodies,
    /// wide, long-prompts, idle-connections, half-heads, aborts, beyond-kv, malformed. In place of
    /// --cores
    #[arg(long, id = "attacks", value_name = "NAME,…", value_delimiter = ',',
        conflicts_with_all = ["cores", "gpus"])]
    pub attacks: Vec<String>,
    /// A setting of an attack, as in stalled.clients=64
    #[arg(long, value_name = "ATTACK.SETTING=N,…", value_delimiter = ',',
        requires = "attacks", conflicts_with_all = ["cores", "gpus"])]
    attack_set: Vec<String>,
    /// Victims at one time: each sends its next request when its last is answered
    #[arg(long, value_name = "N", default_value_t = 4,
        requires = "attacks", conflicts_with_all = ["cores", "gpus"],
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    victim_streams: u32,
    /// Time in which victims send requests, once without attackers and once with each kind
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0,
        requires = "attacks", conflicts_with_all = ["cores", "gpus"])]
    window: f64,
    /// Bearer token of victims [default: that of --api-key]
    #[arg(long, value_name = "KEY",
        requires = "attacks", conflicts_with_all = ["cores", "gpus"])]
    victim_api_key: Option<String>,
    /// Bearer token of attackers [default: that of --api-key]
    #[arg(long, value_name = "KEY",
        requires = "attacks", conflicts_with_all = ["cores", "gpus"])]
    attacker_api_key: Option<String>,
}

/// Longest window: a day.
const MAX_WINDOW_S: f64 = 86_400.0;

fn setup(args: &Args) -> Setup {
    let (load, beside) = (&args.load, &args.beside);
    let keys = |key: &Option<String>| key.clone().or_else(|| args.servers.api_key.clone());
    Setup {
        victim_streams: beside.victim_streams as usize,
        victim_prompt_tokens: load.victim_len.unwrap_or(128),
        victim_output_tokens: load.victim_output_len.unwrap_or(64),
        window_s: beside.window,
        lead_s: load.lead,
        timeout_s: load.timeout.unwrap_or(60.0),
        drain_s: args.drain,
        repeats: args.repeats as usize,
        seed: args.seed,
        separate_keys: keys(&beside.victim_api_key) != keys(&beside.attacker_api_key),
    }
}

/// Runs it. The exit status is 1 if a window could not be measured.
///
/// # Errors
/// Flags out of bounds, or a file that cannot be written.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let attacks = choose(&args.beside.attacks, &args.beside.attack_set)?;
    let window_s = args.beside.window;
    ensure!(
        (0.1..=MAX_WINDOW_S).contains(&window_s),
        "--window: {window_s} is outside 0.1 .. {MAX_WINDOW_S} s"
    );
    let specs = args.servers.specs()?;
    for spec in &specs {
        let url = &spec.target.base_url;
        ensure!(
            !url.starts_with("https:"),
            "--server {url}: attackers speak plain HTTP; give the address behind the TLS proxy"
        );
    }
    let (mut record, mut session) = prepare(args, specs, attacks)?;
    let plan = Plan {
        servers: record.servers.len(),
        conditions: record.attacks.len(),
        repeats: record.setup.repeats,
        seed: record.setup.seed,
        in_turns: true,
    };
    let order = plan.order();
    for (index, slot) in order.iter().enumerate() {
        let attack = record.attacks[slot.condition].clone();
        let pair = session.measure(index, slot.repeat, slot.server, &attack);
        eprintln!("{}", told(&format!("[{}/{}] {}", index + 1, order.len(), line(&pair))));
        record.pairs.push(pair);
        for (i, server) in record.servers.iter_mut().enumerate() {
            server.startup_s.clone_from(&session.startups_s[i]);
            if session.models[i].is_some() {
                server.model.clone_from(&session.models[i]);
            }
        }
        analysis::analyse(&mut record);
        args.json.as_ref().map_or(Ok(()), |path| output::write_json(path, &record))?;
    }
    session.end()?;
    for table in present::tables(&record) {
        println!("{}", table.to_text());
    }
    for (_, title, words) in present::warnings(&record) {
        println!("{}\n", told(&format!("{title}. {words}")));
    }
    if let Some(path) = &args.html {
        output::write_page(path, &present::report(&record)?)?;
    }
    let failed = record.cells.iter().any(|cell| cell.failed_pairs > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The page of a record, from its JSON.
///
/// # Errors
/// It is not of one of [`SCHEMAS`].
pub(crate) fn page_of(json: &str) -> anyhow::Result<Report> {
    present::report(&serde_json::from_str(json)?)
}

fn prepare(
    args: &Args,
    specs: Vec<ServerSpec>,
    attacks: Vec<Chosen>,
) -> anyhow::Result<(Record, Session)> {
    let client = Client::settle(&args.client)?;
    let record = Record {
        schema: SCHEMAS[0].into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: unix_s(),
        command: command_line(),
        machine: Machine::read(&Root::default()),
        client: client.clone(),
        setup: setup(args),
        servers: specs.iter().map(ServerRecord::of).collect(),
        attacks,
        pairs: Vec::new(),
        cells: Vec::new(),
    };
    let keys = Keys {
        victims: args.beside.victim_api_key.clone(),
        attackers: args.beside.attacker_api_key.clone(),
    };
    let session = Session::new(specs, record.setup.clone(), client, keys);
    Ok((record, session))
}

/// One pair in one line.
fn line(pair: &Pair) -> String {
    let head = format!("repeat {}, {}, {}", pair.repeat + 1, pair.server, pair.attack.kind.name());
    let problem = pair.quiet.error.as_ref().or(pair.attacked.error.as_ref());
    if let Some(error) = problem {
        return format!("{head}: {error}");
    }
    let victims = [&pair.quiet, &pair.attacked].map(|window| {
        let Some(victims) = &window.victims else { return "not measured".to_owned() };
        format!(
            "{:.2} answers/s, P99 TTFT {:.1} ms, failed {}",
            victims.achieved_rps,
            victims.from_intended.ttft_ms.p99,
            victims.requests - victims.ok
        )
    });
    let ended = if pair.attacked.server_ended.is_some() { "; the server ended" } else { "" };
    let late = [&pair.quiet, &pair.attacked].iter().any(|window| !window.distrust.is_empty());
    let late = if late { " (client late: left out)" } else { "" };
    format!("{head}: {} → {}{ended}{late}", victims[0], victims[1])
}
