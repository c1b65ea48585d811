//! Flags that do not exist: an answer for those of vLLM that Saccade does not have, and a
//! suggestion only where one is near.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use super::Cli;

/// Commands that take the flags of a server.
const SERVERS: [&str; 3] = ["serve", "device", "frontend"];

/// Flags of `vllm serve` and what Saccade has in their place.
const VLLM: &[(&[&str], &str)] = &[
    (
        &[
            "tensor-parallel-size",
            "tp",
            "pipeline-parallel-size",
            "pp",
            "enable-expert-parallel",
            "decode-context-parallel-size",
            "distributed-executor-backend",
            "disable-custom-all-reduce",
        ],
        "Saccade runs a model on one device; it does not split models over several GPUs",
    ),
    (
        &["data-parallel-size", "dp", "data-parallel-rank", "data-parallel-address"],
        "one server drives one device; start a server per GPU behind a load balancer \
         (--api-server-count adds frontends, not devices)",
    ),
    (
        &["enforce-eager", "compilation-config", "max-seq-len-to-capture", "cuda-graph-sizes"],
        "steps on a GPU are always captured graphs; --cuda-launch chooses how they are launched",
    ),
    (
        &["async-scheduling", "num-scheduler-steps"],
        "the scheduler runs on the device, so no step waits for the host (--scheduler host is the \
         baseline that does)",
    ),
    (
        &["prefix-caching-hash-algo"],
        "a cached block is found by a seeded hash and then compared token by token, so there is no \
         algorithm to choose",
    ),
    (
        &["enable-chunked-prefill"],
        "the flag is --prefill-policy paced (the default), chunked or inline",
    ),
    (
        &["long-prefill-token-threshold", "max-num-partial-prefills", "max-long-partial-prefills"],
        "prompts share each step by --max-num-batched-tokens and --prefill-policy",
    ),
    (
        &["swap-space", "preemption-mode", "kv-offloading-backend", "kv-transfer-config"],
        "KV blocks move to host memory with --kv-offloading-size GIB; without it, requests that \
         gave up their blocks are computed again",
    ),
    (&["cpu-offload-gb"], "all weights stay in device memory"),
    (&["calculate-kv-scales"], "KV of --kv-cache-dtype fp8 has the scales of the checkpoint, or 1"),
    (
        &["speculative-config", "speculative-model", "num-speculative-tokens"],
        "Saccade has no speculative decoding",
    ),
    (
        &[
            "max-cpu-loras",
            "lora-dtype",
            "fully-sharded-loras",
            "lora-target-modules",
            "lora-extra-vocab-size",
            "long-lora-scaling-factors",
            "enable-lora-bias",
            "default-mm-loras",
            "specialize-active-lora",
            "enable-tower-connector-lora",
        ],
        "all adapters of --lora-modules are loaded at the start; --max-lora-rank and --max-loras \
         bound them, and nothing else about them can be chosen",
    ),
    (
        &["trust-remote-code", "code-revision", "model-impl"],
        "Saccade runs no code from model folders; docs/families.md lists the families it serves",
    ),
    (
        &["task", "runner", "convert", "limit-mm-per-prompt", "mm-processor-kwargs"],
        "Saccade generates text from text; it has no other tasks or inputs",
    ),
    (&["tool-server"], "Saccade runs no tools itself: clients run what a model calls"),
    (
        &["guided-decoding-backend", "structured-outputs-config"],
        "Saccade compiles grammars itself and its device walks them, so there is no back end to \
         choose",
    ),
    (
        &["root-path"],
        "paths are as the OpenAI API has them; put a proxy that rewrites them in front of it",
    ),
    (
        &["ssl-cert-reqs", "enable-ssl-refresh"],
        "--ssl-ca-certs demands certificates of clients, and changed files are always read again",
    ),
    (
        &["allowed-methods", "allowed-headers", "allow-credentials", "middleware"],
        "browsers of other origins are admitted by --allowed-origins",
    ),
    (
        &[
            "disable-log-requests",
            "enable-log-requests",
            "disable-log-stats",
            "uvicorn-log-level",
            "max-log-len",
        ],
        "what is logged is set by --log (info, debug, or a filter by module)",
    ),
    (
        &["download-dir"],
        "downloads go to the Hugging Face cache; set HF_HOME or HF_HUB_CACHE to move it",
    ),
    (&["max-logprobs"], "a request gets up to 20 logprobs per token"),
    (
        &["tokenizer-mode", "tokenizer-revision", "skip-tokenizer-init"],
        "the tokenizer is the model's tokenizer.json, or that of --tokenizer",
    ),
    (
        &["rope-scaling", "rope-theta", "hf-overrides", "disable-sliding-window"],
        "these come from the model's config.json; edit it there",
    ),
    (
        &["override-generation-config"],
        "sampling defaults come from the model (--generation-config auto) or are none (vllm)",
    ),
    (&["attention-backend"], "the device chooses its attention kernels"),
    (&["enable-sleep-mode"], "Saccade has no sleep mode; SIGTERM drains and ends the server"),
    (
        &["collect-detailed-traces"],
        "--otlp-traces-endpoint alone sends a span for each request, with the times of its parts",
    ),
];

/// Of the flags that `vllm serve` has and Saccade does not: what Saccade has in its place.
pub(crate) fn of_vllm(flag: &str) -> Option<&'static str> {
    let name = flag.trim_start_matches('-').replace('_', "-");
    let positive = name.strip_prefix("no-").unwrap_or(&name);
    let row = VLLM.iter().find(|(flags, _)| flags.contains(&positive))?;
    Some(row.1)
}

/// The command line, or an end with what is wrong with it.
pub(crate) fn parse_or_exit() -> Cli {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    match <Cli as clap::Parser>::try_parse() {
        Ok(cli) => cli,
        Err(error) => explain(error, &words).exit(),
    }
}

/// The error with an answer in place of clap's nearest name, which shares letters but no meaning.
pub(crate) fn explain(mut error: Error, words: &[String]) -> Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    if flag.starts_with("--prefix-store") {
        // It may hold a password, and what is printed ends in a log.
        error.insert(ContextKind::InvalidValue, ContextValue::String("***".to_owned()));
        return error;
    }
    if error.kind() != ErrorKind::UnknownArgument {
        if let Some(variable) = source(flag, words) {
            let tip = format!("the value is that of {variable} (the environment, or --config)");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        return error;
    }
    // For -tp clap names only the first letter.
    let is_short = !flag.starts_with("--");
    let whole = words.iter().find(|word| is_short && word.starts_with(flag.as_str()));
    let flag = whole.unwrap_or(flag).clone();
    let mut root = Cli::command();
    root.build();
    let mut command = addressed(&root, words);
    let answer = of_vllm(&flag).filter(|_| SERVERS.contains(&command.get_name()));
    if let Some(answer) = answer {
        return command.error(ErrorKind::UnknownArgument, format!("{flag}: {answer}"));
    }
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    if let Some(near) = nearest(&flag, flags.filter_map(clap::Arg::get_long)) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
    }
    error
}

/// The variable that a flag's value came from, if no word gave it. `flag` as clap shows it:
/// `--port <PORT>`.
fn source(flag: &str, words: &[String]) -> Option<String> {
    let name = flag.split([' ', '=']).next()?;
    let mut root = Cli::command();
    root.build();
    let command = addressed(&root, words);
    let long = name.strip_prefix("--")?;
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(long))?;
    let short = arg.get_short().map(|short| format!("-{short}"));
    let gives = |word: &String| {
        word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            || short.as_ref().is_some_and(|short| word.starts_with(short.as_str()))
    };
    if words.iter().any(gives) {
        return None;
    }
    Some(arg.get_env()?.to_string_lossy().into_owned())
}

/// The innermost command that the words name.
fn addressed(root: &Command, words: &[String]) -> Command {
    let mut command = root;
    for word in words.iter().skip(1) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    command.clone()
}

/// The flag that was probably meant: a slip of the fingers, or words left out.
fn nearest<'a>(typed: &str, flags: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-').replace('_', "-");
    let slips = (typed.chars().count() / 5).max(1);
    let mut near: Vec<(usize, &str)> = flags
        .map(|flag| (edits(&typed, flag), flag))
        .filter(|(edits, flag)| *edits <= slips || leaves_out_words(&typed, flag))
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    match near[..] {
        [(_, only)] => Some(only),
        [(best, flag), (next, _), ..] if best <= slips && best < next => Some(flag),
        _ => None,
    }
}

/// Whether the words of `typed` are some of the flag's, in its order.
fn leaves_out_words(typed: &str, flag: &str) -> bool {
    let mut words = flag.split('-');
    typed.split('-').all(|word| words.any(|of_flag| of_flag == word))
}

/// Letters to insert, drop, change or swap with a neighbour to get from one word to the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                _ => {
                    let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { least.min(rows[i - 2][j - 2] + 1) } else { least }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// What the user reads after typing this.
    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).expect_err(line);
        explain(error, &words).to_string()
    }

    #[test]
    fn flags_of_vllm_that_saccade_lacks_have_an_answer() {
        for (line, answer) in [
            ("saccade serve --tensor-parallel-size 2", "does not split models over several GPUs"),
            ("saccade serve ./m --tensor_parallel_size=2", "does not split models"),
            ("saccade serve -tp 2", "-tp: Saccade runs a model on one device"),
            ("saccade --log debug serve --pipeline-parallel-size 2", "on one device"),
            ("saccade serve --enforce-eager", "--cuda-launch"),
            ("saccade serve --prefix-caching-hash-algo sha256", "token by token"),
            ("saccade serve --max-cpu-loras 4", "loaded at the start"),
            ("saccade frontend --trust-remote-code", "no code from model folders"),
        ] {
            let said = said(line);
            assert!(said.contains(answer), "{line}: {said}");
            assert!(!said.contains("similar argument"), "{line}: {said}");
            assert!(said.contains("Usage: saccade"), "{line}: {said}");
        }
    }

    #[cfg(feature = "fetch")]
    #[test]
    fn the_url_of_a_store_is_not_repeated() {
        for command in ["serve", "kv list"] {
            let said = said(&format!("saccade {command} --prefix-store redis://:s3cret@h:99999"));
            assert!(said.contains("--prefix-store") && said.contains("port"), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn a_slip_gets_a_suggestion_and_an_unknown_name_none() {
        for (line, flag) in [
            ("saccade serve --max-model-length 9", "--max-model-len"),
            ("saccade serve --max-seqs 9", "--max-num-seqs"),
            ("saccade serve --gpu-memory 0.5", "--gpu-memory-utilization"),
            ("saccade serve --prot 80", "--port"),
            ("saccade doctor --secnods 3", "--seconds"),
            ("saccade bench serve --request-rates 3", "--request-rate"),
        ] {
            let said = said(line);
            let suggested = said.contains(&format!("a similar argument exists: '{flag}'"));
            assert!(suggested, "{line}: {said}");
        }
        for line in [
            "saccade serve --tensor-threads 2",
            "saccade serve --threads 2",
            "saccade serve --frobnicate",
            "saccade doctor --tensor-parallel-size 2",
            "saccade top --refresh 2",
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument"), "{line}: {said}");
            assert!(!said.contains("similar") && !said.contains("tip:"), "{line}: {said}");
        }
    }

    #[test]
    fn the_table_names_no_flag_that_exists_and_none_twice() {
        let mut root = Cli::command();
        root.build();
        let serve = root.find_subcommand("serve").expect("serve is a command");
        let ours: Vec<&str> = serve.get_arguments().filter_map(clap::Arg::get_long).collect();
        let mut named: Vec<&str> =
            VLLM.iter().flat_map(|(flags, _)| flags.iter().copied()).collect();
        assert!(named.iter().all(|flag| !ours.contains(flag)), "{named:?}");
        for (_, answer) in VLLM {
            let flags =
                answer.split([' ', ',', ';', ':', '(', ')']).filter(|w| w.starts_with("--"));
            for flag in flags {
                assert!(ours.contains(&&flag[2..]), "{answer}: there is no {flag}");
            }
        }
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), count);
    }
}
