//! `saccade bench serve`.

/// Flags of `saccade bench serve`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// None yet.
pub fn run(_args: &Args) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("not built in yet")
}
