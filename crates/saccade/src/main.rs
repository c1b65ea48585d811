//! `saccade`: starts the planes of a server, or one of them; measures this server and others.

#[cfg(feature = "device")]
mod adapters;
mod bundled;
mod cli;
mod config_file;
#[cfg(feature = "device")]
mod device_plane;
#[cfg(feature = "device")]
mod emulated;
#[cfg(feature = "fetch")]
mod fetch_plane;
mod frontend_plane;
#[cfg(feature = "device")]
mod gpu;
#[cfg(feature = "device")]
mod kv_budget;
#[cfg(feature = "device")]
mod kv_region;
mod model_source;
mod open_files;
mod remote;
mod run_folder;
#[cfg(feature = "device")]
mod serve;
mod service_variables;
mod supervised;

use std::io::IsTerminal;
use std::process::ExitCode;

use cli::Command;

/// A mistake in flags, model folder or region: a restart would not help.
pub(crate) const EXIT_CONFIG: u8 = 2;

fn main() -> ExitCode {
    // Before anything reads the environment, and before there is a second thread.
    let foreign = service_variables::remove();
    if let Err(error) = config_file::load_into_environment() {
        return report(&error);
    }
    let cli = cli::parse_or_exit();
    init_log(&cli.log);
    if !foreign.is_empty() {
        let variables = foreign.join(" ");
        tracing::info!(variables, "ignored: Kubernetes sets these for a service");
    }
    run(cli.command).unwrap_or_else(|error| report(&error))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        #[cfg(feature = "device")]
        Command::Serve(args) => serve::run(&args)?,
        #[cfg(feature = "device")]
        Command::Device(args) => device_plane::run(&args)?,
        Command::Frontend(args) => frontend_plane::run(&args)?,
        #[cfg(feature = "fetch")]
        Command::Fetch(args) => fetch_plane::run(&args)?,
        #[cfg(feature = "plan")]
        Command::Plan(args) => return saccade_plan::run(&args),
        #[cfg(feature = "fetch")]
        Command::Kv(command) => return saccade_kv::run(&command),
        #[cfg(feature = "tools")]
        Command::Top(args) => return saccade_top::run(&args),
        #[cfg(feature = "tools")]
        Command::Bench(command) => return saccade_bench::run(&command),
        #[cfg(feature = "tools")]
        Command::Doctor(args) => return saccade_doctor::run(&args),
        #[cfg(feature = "tools")]
        Command::Audit(args) => return saccade_audit::run(&args),
        Command::Tokenize(args) => {
            let output = std::io::BufWriter::new(std::io::stdout().lock());
            args.options().run(std::io::stdin().lock(), output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("saccade: {error:#}");
    ExitCode::from(EXIT_CONFIG)
}

fn init_log(filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
