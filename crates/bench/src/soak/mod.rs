//! `saccade bench soak`: a server under victims whose answers are known, attackers, and signals to
//! its planes. Every answer is compared token for token, every stream must end with an answer or an
//! explicit error, and memory and descriptors are sampled.

mod planes;
mod present;
mod questions;
mod record;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use saccade_host::Root;
use saccade_load::{Origin, Session, Target, Workload};
use saccade_report::Report;

use crate::attackers::{Chosen, choose};
use crate::interference::{
    Machine, Server, ServerFlags, ServerRecord, ServerSpec, command_line, told, unix_s,
};
use crate::output;
use questions::Question;
pub(crate) use record::SCHEMAS;
use record::{Record, Sample, Setup};
use run::{Seen, Soak};

/// Longest wait, after the soak, until every question is answered rightly.
const LAST_CHECK: Duration = Duration::from_secs(60);
/// Between two attempts of it.
const CHECK_PAUSE: Duration = Duration::from_millis(500);
/// Longest soak: a week.
const MAX_SECONDS: f64 = 604_800.0;

/// Flags of `saccade bench soak`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten, next_help_heading = "Server")]
    servers: ServerFlags,
    /// Length of the soak
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, help_heading = "Victims")]
    duration: f64,
    /// Victims at one time
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Victims",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    victim_streams: u32,
    /// Questions whose answers are learnt before
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Victims",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    questions: u32,
    /// Time after which a request of a victim counts as one without an end
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, help_heading = "Victims")]
    timeout: f64,
    /// Attacks, or all, of `bench attack`, one at a time in a random order [default: none]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "Attackers")]
    attacks: Vec<String>,
    /// A setting of an attack, as in stalled.clients=64
    #[arg(
        long,
        value_name = "ATTACK.SETTING=N,…",
        value_delimiter = ',',
        requires = "attacks",
        help_heading = "Attackers"
    )]
    attack_set: Vec<String>,
    /// Time of each attack
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, help_heading = "Attackers")]
    attack_time: f64,
    /// Time without attackers after each attack
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, help_heading = "Attackers")]
    rest: f64,
    /// Planes to send signals to, by the second word of their command line: device,frontend,fetch.
    /// Needs --start
    #[arg(
        long,
        value_name = "PLANE,…",
        value_delimiter = ',',
        requires = "start",
        help_heading = "Signals"
    )]
    kill: Vec<String>,
    /// Mean time between two signals
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, help_heading = "Signals")]
    kill_every: f64,
    /// Signals: kill, and stop (a stopped plane continues after --stop-for)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "kill",
        value_parser = ["kill", "stop"], help_heading = "Signals")]
    signals: Vec<String>,
    /// Time for which a plane is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, help_heading = "Signals")]
    stop_for: f64,
    /// Time between two samples of memory and descriptors
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, help_heading = "Results")]
    sample_every: f64,
    /// Seed of questions, attacks and signals
    #[arg(long, default_value_t = 0, help_heading = "Results")]
    seed: u64,
    /// Write the record as JSON
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    json: Option<PathBuf>,
    /// Write a page with plots
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        for (flag, value, least) in [
            ("--duration", self.duration, 1.0),
            ("--timeout", self.timeout, 1.0),
            ("--attack-time", self.attack_time, 0.1),
            ("--rest", self.rest, 0.0),
            ("--kill-every", self.kill_every, 0.1),
            ("--stop-for", self.stop_for, 0.0),
            ("--sample-every", self.sample_every, 0.5),
        ] {
            ensure!(
                (least..=MAX_SECONDS).contains(&value),
                "{flag}: {value} is outside {least} .. {MAX_SECONDS} s"
            );
        }
        ensure!(self.servers.servers.len() == 1, "--server: a soak has one server");
        output::check_writable("--json", self.json.as_deref())?;
        output::check_writable("--html", self.html.as_deref())
    }

    fn setup(&self, compared_by: &str) -> Setup {
        Setup {
            duration_s: self.duration,
            victim_streams: self.victim_streams as usize,
            questions: self.questions as usize,
            compared_by: compared_by.to_owned(),
            timeout_s: self.timeout,
            kill: self.kill.clone(),
            kill_every_s: self.kill_every,
            signals: self
                .signals
                .iter()
                .map(|name| format!("SIG{}", name.to_uppercase()))
                .collect(),
            stop_for_s: self.stop_for,
            attack_rest_s: (self.attack_time, self.rest),
            sample_every_s: self.sample_every,
            seed: self.seed,
        }
    }
}

/// Runs it. The exit status is 1 if anything happened that must not.
///
/// # Errors
/// Flags out of bounds, a server that does not start or gives two answers to one question, a file
/// that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.check()?;
    let attacks = choose(&args.attacks, &args.attack_set)?;
    let specs = args.servers.specs()?;
    let Some(spec) = specs.first() else { bail!("--server: a soak has one server") };
    let origin = Origin::parse(&spec.target.base_url)?;
    ensure!(
        attacks.is_empty() || !origin.tls,
        "--attacks: attackers speak plain HTTP; give the address behind the TLS proxy"
    );
    eprintln!("seed {}", args.seed);
    let mut server = Server::bring_up(spec, &Workload::fixed(16, 4), None)?;
    let record = soak(args, spec, attacks, &mut server, origin.port)?;
    server.stop()?;
    args.json.as_ref().map_or(Ok(()), |path| output::write_json(path, &record))?;
    println!("{}", present::ends(&record).to_text());
    println!("{}", present::reasons(&record).to_text());
    println!("{}", present::memory(&record).to_text());
    for (_, title, words) in present::verdicts(&record) {
        println!("{}\n", told(&format!("{title}. {words}")));
    }
    if let Some(path) = &args.html {
        output::write_page(path, &present::report(&record)?)?;
    }
    Ok(if record.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The page of a record, from its JSON.
///
/// # Errors
/// It is not of one of [`SCHEMAS`].
pub(crate) fn page_of(json: &str) -> anyhow::Result<Report> {
    present::report(&serde_json::from_str(json)?)
}

fn soak(
    args: &Args,
    spec: &ServerSpec,
    attacks: Vec<Chosen>,
    server: &mut Server,
    port: u16,
) -> anyhow::Result<Record> {
    let started_unix_s = unix_s();
    let first = server.root_pid();
    let target = server.target.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let timeout = Duration::from_secs_f64(args.timeout);
    let learnt = questions::learn(&target, args.questions as usize, args.seed, timeout);
    let (questions, detail) = runtime.block_on(learnt)?;
    let setup = args.setup(detail.name());
    let at_rest_before = at_rest(first, 0.0);
    let places = (first, port);
    let soak =
        Arc::new(Soak::new(setup.clone(), target.clone(), attacks.clone(), questions, places));
    let seen = soak.run(args.seed)?;
    let lasted_s = soak.now_s();
    let mut server_ended = server.check().err().map(|error| format!("{error:#}"));
    let last_check = match &server_ended {
        Some(_) => Some("the server had ended".to_owned()),
        None => runtime.block_on(check_again(&target, &soak.questions, timeout)),
    };
    let at_rest_after = at_rest(first, soak.now_s());
    server_ended = server_ended.or_else(|| server.check().err().map(|e| format!("{e:#}")));
    let mut of_server = ServerRecord::of(spec);
    of_server.model.clone_from(&target.model);
    of_server.startup_s.extend(server.startup_s);
    let Seen { ends, reasons, right_tokens, right_by_sample, faults, kills, bouts, samples } = seen;
    Ok(Record {
        schema: SCHEMAS[0].into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s,
        command: command_line(),
        machine: Machine::read(&Root::default()),
        server: of_server,
        setup,
        attacks,
        lasted_s,
        ends,
        reasons,
        right_tokens,
        right_by_sample,
        faults,
        kills,
        bouts,
        at_rest_before,
        at_rest_after,
        samples,
        last_check,
        server_ended,
    })
}

fn at_rest(first: Option<u32>, at_s: f64) -> Sample {
    match first {
        Some(pid) => planes::sample(&Root::default(), pid, at_s),
        None => Sample { at_s, planes: std::collections::BTreeMap::new() },
    }
}

/// Asks every question until all are answered rightly; else what was wrong at the end.
async fn check_again(target: &Target, questions: &[Question], timeout: Duration) -> Option<String> {
    let until = Instant::now() + LAST_CHECK;
    loop {
        let wrong = match wrong_answer(target, questions, timeout).await {
            Ok(()) => return None,
            Err(wrong) => wrong,
        };
        if Instant::now() >= until {
            return Some(format!("{wrong:#}"));
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
}

async fn wrong_answer(
    target: &Target,
    questions: &[Question],
    timeout: Duration,
) -> anyhow::Result<()> {
    let session = Session::new(target, 0, timeout).await?;
    for (number, question) in questions.iter().enumerate() {
        let heard = questions::ask(&session, target, &question.body)
            .await
            .with_context(|| format!("question {number}"))?;
        ensure!(heard == question.known, "question {number} is answered otherwise than before");
    }
    Ok(())
}
