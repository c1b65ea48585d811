//! `saccade-mock`: the scripted server as a program.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use saccade_mock::{Count, Cpu, Delay, Script, Server, Stall, StallMode};

/// A scripted OpenAI-compatible server with known delays.
///
/// Delays are constant:20ms, uniform:10ms,30ms, lognormal:20ms,0.5 (median, sigma),
/// bimodal:10ms,200ms,0.05 (share of the second), list:10ms,20ms (in turn). Counts are the same
/// without unit. The whole script is described in the crate's README; flags win over the file.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where to listen; port 0 takes a free one. The address is printed.
    #[arg(long, default_value = "127.0.0.1:8099")]
    listen: SocketAddr,
    /// A script as a JSON file.
    #[arg(long)]
    script: Option<PathBuf>,
    /// Name of the model.
    #[arg(long)]
    model: Option<String>,
    /// Key that requests must carry.
    #[arg(long)]
    api_key: Option<String>,
    /// Seed of every draw.
    #[arg(long)]
    seed: Option<u64>,
    /// Time to the first event.
    #[arg(long)]
    ttft: Option<Delay>,
    /// Time between events.
    #[arg(long)]
    itl: Option<Delay>,
    /// Added to the time to the first event for each token of the prompt.
    #[arg(long)]
    prefill_us_per_token: Option<f64>,
    /// Tokens in an event.
    #[arg(long)]
    tokens_per_event: Option<Count>,
    /// Where answers end by themselves.
    #[arg(long)]
    natural_tokens: Option<Count>,
    /// Requests served at once.
    #[arg(long)]
    max_running: Option<usize>,
    /// Requests that wait; more get a 429.
    #[arg(long)]
    max_waiting: Option<usize>,
    /// A stall: START_S+SECONDS, or START_S+SECONDS:hold. May be repeated.
    #[arg(long, value_parser = parse_stall)]
    stall: Vec<Stall>,
    /// Share of requests that get a 500.
    #[arg(long)]
    fail_500: Option<f64>,
    /// Share of requests that are cut in the middle.
    #[arg(long)]
    fail_cut: Option<f64>,
    /// Share of requests that get an error event.
    #[arg(long)]
    fail_error_event: Option<f64>,
    /// Share of requests that are never answered.
    #[arg(long)]
    fail_hang: Option<f64>,
    /// Delays come from work on the processor (`cpu` of the script has the costs).
    #[arg(long)]
    cpu: bool,
    /// Scheduling of the whole process: fifo:N, N from 1 to 99.
    #[arg(long, value_parser = parse_priority)]
    priority: Option<i32>,
}

fn parse_stall(text: &str) -> Result<Stall, String> {
    let (times, mode) = match text.split_once(':') {
        None => (text, StallMode::Freeze),
        Some((times, "freeze")) => (times, StallMode::Freeze),
        Some((times, "hold")) => (times, StallMode::Hold),
        Some((_, mode)) => return Err(format!("{mode:?} is not freeze or hold")),
    };
    let parsed = times
        .split_once('+')
        .and_then(|(at, length)| Some((at.parse::<f64>().ok()?, length.parse::<f64>().ok()?)));
    let (at_s, for_s) = parsed.ok_or("a stall is START_S+SECONDS, such as 5+2")?;
    Ok(Stall { at_s: Some(at_s), at_request: None, for_s, mode })
}

fn parse_priority(text: &str) -> Result<i32, String> {
    text.strip_prefix("fifo:")
        .and_then(|number| number.parse().ok())
        .filter(|number| (1..=99).contains(number))
        .ok_or_else(|| "a priority is fifo:N, N from 1 to 99".to_owned())
}

/// Sets `field` where the flag was given.
fn set<T>(field: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *field = value;
    }
}

fn script(args: Args) -> Result<Script> {
    let mut script = match &args.script {
        None => Script::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--script: {}", path.display()))?;
            Script::from_json(&text).with_context(|| path.display().to_string())?
        }
    };
    set(&mut script.model, args.model);
    set(&mut script.seed, args.seed);
    set(&mut script.ttft, args.ttft);
    set(&mut script.itl, args.itl);
    set(&mut script.prefill_us_per_token, args.prefill_us_per_token);
    set(&mut script.tokens_per_event, args.tokens_per_event);
    set(&mut script.capacity.running, args.max_running);
    set(&mut script.capacity.waiting, args.max_waiting);
    set(&mut script.failures.http_500, args.fail_500);
    set(&mut script.failures.cut, args.fail_cut);
    set(&mut script.failures.error_event, args.fail_error_event);
    set(&mut script.failures.hang, args.fail_hang);
    script.api_key = args.api_key.or(script.api_key);
    script.natural_tokens = args.natural_tokens.or(script.natural_tokens);
    script.stalls.extend(args.stall);
    if args.cpu && script.cpu.is_none() {
        script.cpu = Some(Cpu::default());
    }
    Ok(script)
}

/// Puts the calling thread, and so every thread it will start, under `SCHED_FIFO`.
fn set_priority(priority: i32) -> Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: pid 0 is the caller; `parameter` lives through the call, which only reads it.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    if result != 0 {
        bail!("--priority fifo:{priority}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// Raises the limit of open files as far as the system allows.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Below the hard limit nothing is refused; where it is, fewer connections fit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(priority) = args.priority {
        set_priority(priority)?;
    }
    raise_open_files();
    let listen = args.listen;
    let server = Server::start(script(args)?, listen)?;
    println!("saccade-mock listening on http://{}", server.address());
    server.join()
}
