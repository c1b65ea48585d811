//! The command line. Flags are vLLM's where vLLM has them; each is also an environment
//! variable (`SACCADE_` and the flag in capitals) and a key of the file that `--config` names.

mod cuda;
#[cfg(feature = "fetch")]
mod fetch;
mod groups;
mod lora;
mod policy;
mod sim;
mod tokenize;
mod unknown;

use clap::{Args, Parser, Subcommand};

#[cfg(not(feature = "device"))]
pub(crate) use cuda::CudaArgs;
#[cfg(feature = "device")]
pub(crate) use cuda::{CudaArgs, LaunchArg, ProductsArg, RotationArg};
#[cfg(feature = "fetch")]
pub(crate) use fetch::FetchArgs;
#[cfg(feature = "device")]
pub(crate) use fetch::FetchOrder;
pub(crate) use groups::DeviceName;
pub(crate) use groups::{
    DeviceArgs, HttpArgs, LoadFormat, ModelArgs, PlacementArgs, RingArgs, RingPlace, SpecialTokens,
};
#[cfg(feature = "device")]
pub(crate) use groups::{KvCacheDtype, Prefill, QuantizationArg, RingMemory};
pub(crate) use lora::{LoraArgs, check as check_lora};
#[cfg(feature = "device")]
pub(crate) use policy::PolicyName;
pub(crate) use sim::{SchedulerPlace, SimArgs};
pub(crate) use tokenize::TokenizeArgs;
pub(crate) use unknown::{of_vllm, parse_or_exit};

const AFTER_HELP: &str = "\
Examples:
  saccade serve                                     the bundled small model, on port 8000
  saccade serve Qwen/Qwen3-0.6B --max-model-len 4096
  saccade serve ./my-model --device-cores 2-7 --frontend-cores 0-1
  saccade doctor                                    is an engine on this machine short of CPU?

Every flag of the planes is also an environment variable (--max-num-seqs: SACCADE_MAX_NUM_SEQS)
and a key of the YAML file given by --config (max-num-seqs: 64). A flag wins over a variable, a
variable over the file.";

/// LLM serving whose latency does not depend on how busy the host is.
#[derive(Debug, Parser)]
#[command(name = "saccade", version, after_help = AFTER_HELP, propagate_version = true)]
pub(crate) struct Cli {
    /// What to log: error, warn, info, debug, trace, or a filter by module
    #[arg(long, global = true, default_value = "info", env = "SACCADE_LOG", value_name = "FILTER")]
    pub log: String,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model: start a device plane and a frontend plane, and restart them if they die
    #[cfg(feature = "device")]
    #[command(after_help = AFTER_HELP)]
    Serve(Box<ServeArgs>),
    /// Run a device plane alone, on a ring that exists
    #[cfg(feature = "device")]
    Device(Box<ServeArgs>),
    /// Run a frontend plane alone, on a ring that exists (on a DPU's cores, or on fenced cores)
    Frontend(Box<ServeArgs>),
    /// Run a fetch plane alone, for the device plane that makes the ring at --fetch-ring
    #[cfg(feature = "fetch")]
    Fetch(Box<ServeArgs>),
    /// Look into a prefix store and tend it: list, verify, evict, warm
    #[cfg(feature = "fetch")]
    #[command(subcommand)]
    Kv(saccade_kv::Command),
    /// Watch a running server: planes, requests, KV, latencies, and the cost of the host
    #[cfg(feature = "tools")]
    Top(Box<saccade_top::Args>),
    /// Simulate how a named device would serve a load, and how many devices it needs
    #[cfg(feature = "plan")]
    Plan(Box<saccade_plan::Args>),
    /// Measure servers with the OpenAI API, and what their hosts do to them
    #[cfg(feature = "tools")]
    #[command(subcommand)]
    Bench(saccade_bench::Command),
    /// Find out whether a running engine is short of CPU, why, and what to change
    #[cfg(feature = "tools")]
    Doctor(Box<saccade_doctor::Args>),
    /// Read a scheduler's accounting: how many cores per GPU a cluster allocates
    #[cfg(feature = "tools")]
    Audit(Box<saccade_audit::Args>),
    /// Turn text from the standard input into token ids, or ids into text, without a server
    Tokenize(TokenizeArgs),
}

/// All flags; each plane reads its own, so that the supervisor can hand the same ones to all.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub lora: LoraArgs,
    #[command(flatten)]
    pub http: HttpArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub placement: PlacementArgs,
    #[command(flatten)]
    pub ring: RingArgs,
    #[cfg(feature = "fetch")]
    #[command(flatten)]
    pub fetch: FetchArgs,
    #[command(flatten)]
    pub cuda: CudaArgs,
    #[command(flatten)]
    pub sim: SimArgs,
    /// YAML file of flags, as `flag-name: value`
    #[arg(long, value_name = "FILE", env = "SACCADE_CONFIG", help_heading = "General")]
    pub config: Option<std::path::PathBuf>,
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use clap::{Arg, CommandFactory};

    /// Commands that start planes; the measuring ones are typed by hand, once.
    const PLANES: [&str; 4] = ["serve", "device", "frontend", "fetch"];

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Commands that the tools start themselves: their names must not clash with ours.
    #[test]
    fn hidden_commands_parse_in_this_binary() {
        let server = ["saccade", "bench", "neighbour", "server", "true", "--log-file", "x"];
        assert!(Cli::try_parse_from(server).is_ok());
    }

    fn flags(command: &clap::Command) -> impl Iterator<Item = (&Arg, &str)> {
        let listed = |a: &&Arg| !["help", "version"].contains(&a.get_id().as_str());
        command.get_arguments().filter(listed).filter_map(|a| Some((a, a.get_long()?)))
    }

    #[test]
    fn every_flag_has_an_environment_variable_of_its_name() {
        let command = Cli::command();
        for sub in PLANES.iter().filter_map(|name| command.find_subcommand(name)) {
            for (arg, long) in flags(sub) {
                let expected = format!("SACCADE_{}", long.replace('-', "_").to_uppercase());
                let env = arg.get_env().map(|e| e.to_string_lossy().into_owned());
                assert_eq!(env.as_deref(), Some(expected.as_str()), "flag --{long}");
            }
        }
    }

    #[cfg(feature = "device")]
    #[test]
    fn prefix_caching_is_on_unless_refused() {
        let shares = |flags: &[&str]| {
            let line = ["saccade", "serve"].iter().chain(flags);
            let Command::Serve(args) = Cli::try_parse_from(line).unwrap().command else {
                panic!("another command")
            };
            args.device.shares_prefixes().ok()
        };
        let (on, off) = ("--enable-prefix-caching", "--no-enable-prefix-caching");
        assert_eq!(shares(&[]), Some(true));
        assert_eq!(shares(&[on, "./model"]), Some(true));
        assert_eq!(shares(&[off]), Some(false));
        assert_eq!(shares(&["--enable-prefix-caching=false"]), Some(false));
        // Of two flags the last counts, as in vLLM.
        assert_eq!(shares(&[off, on]), Some(true));
        assert_eq!(shares(&[on, off]), Some(false));
    }

    /// Tables of a command's flags, by heading, each heading one level below `level`.
    fn tables(command: &clap::Command, level: &str) -> String {
        let mut text = String::new();
        let mut heading = None;
        for (arg, long) in flags(command).filter(|(arg, _)| !arg.is_hide_set()) {
            let title = arg.get_help_heading().unwrap_or("General");
            if heading != Some(title) {
                heading = Some(title);
                write!(text, "\n{level} {title}\n\n| flag | meaning | default |\n|---|---|---|\n")
                    .unwrap();
            }
            let default: Vec<_> =
                arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help.replace('|', "\\|").replace('\n', " ");
            writeln!(text, "| `--{long}` | {help} | {} |", default.join(" ")).unwrap();
        }
        text
    }

    /// docs/flags.md, from the flags themselves.
    fn flags_reference() -> String {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").expect("serve is a command");
        format!(
            "# Flags of `saccade serve`\n\nGenerated from the code by a test; \
             `UPDATE_DOCS=1 cargo test -p saccade` regenerates it. Each flag is also an \
             environment variable, and a key of the file that `--config` names.\n{}",
            tables(serve, "##")
        )
    }

    /// docs/tools.md: every command that starts no plane, depth first.
    fn tools_reference() -> String {
        fn tell(command: &clap::Command, path: &str, text: &mut String) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            write!(text, "\n## `{path}`\n\n{about}.\n{}", tables(command, "###")).unwrap();
            for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
                tell(sub, &format!("{path} {}", sub.get_name()), text);
            }
        }
        let command = Cli::command();
        let mut text = String::from(
            "# Flags of the tools\n\nGenerated from the code by a test; \
             `UPDATE_DOCS=1 cargo test -p saccade` regenerates it. What the tools are for and how \
             to read what they say: [measure.md](measure.md); of `saccade kv`: [kv.md](kv.md).\n",
        );
        for name in ["bench", "doctor", "audit", "top", "kv", "tokenize", "plan"] {
            let tool = command.find_subcommand(name).expect("a command of this name");
            tell(tool, &format!("saccade {name}"), &mut text);
        }
        text
    }

    #[test]
    fn references_match_the_code() {
        for (name, text) in [("flags.md", flags_reference()), ("tools.md", tools_reference())] {
            let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                written == text,
                "docs/{name} is stale: UPDATE_DOCS=1 cargo test -p saccade --bins"
            );
        }
    }
}
