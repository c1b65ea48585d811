//! Which processes are engines, and what part each plays.

use std::path::Path;

use saccade_host::Process;
use serde::Serialize;

use crate::finding::Change;

/// An engine that is known by its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
    /// TensorRT-LLM (trtllm-serve)
    TensorrtLlm,
    /// llama.cpp's server
    LlamaCpp,
    /// Text Generation Inference
    Tgi,
    /// Ollama, which runs llama.cpp or its own engine
    Ollama,
    /// This project
    Saccade,
    /// Anything else that was named by number, port or container.
    Unknown,
}

impl Engine {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Vllm => "vLLM",
            Engine::Sglang => "SGLang",
            Engine::TensorrtLlm => "TensorRT-LLM",
            Engine::LlamaCpp => "llama.cpp",
            Engine::Tgi => "TGI",
            Engine::Ollama => "Ollama",
            Engine::Saccade => "Saccade",
            Engine::Unknown => "unknown engine",
        }
    }
}

/// The part of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// HTTP, validation and, in most engines, tokenization.
    Server,
    /// Schedules; hands each step to the workers.
    Core,
    /// Launches the kernels of one rank.
    Worker,
    /// Turns tokens into text.
    Detokenizer,
    /// Starts the others and watches.
    Launcher,
    /// Anything else in the tree: resource trackers, compile workers.
    Helper,
}

impl Role {
    /// Whether each token passes through it.
    pub fn is_on_path(self) -> bool {
        !matches!(self, Role::Launcher | Role::Helper)
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "API server",
            Role::Core => "engine core",
            Role::Worker => "worker",
            Role::Detokenizer => "detokenizer",
            Role::Launcher => "launcher",
            Role::Helper => "helper",
        }
    }
}

/// Titles that engines give their processes (setproctitle), by their beginning. The first that
/// fits holds.
const TITLES: [(&str, Engine, Role); 15] = [
    ("VLLM::EngineCore", Engine::Vllm, Role::Core),
    ("VLLM::Worker", Engine::Vllm, Role::Worker),
    ("VLLM::APIServer", Engine::Vllm, Role::Server),
    ("VLLM::ApiServer", Engine::Vllm, Role::Server),
    ("VLLM::", Engine::Vllm, Role::Helper),
    ("VLLMWorker", Engine::Vllm, Role::Worker),
    ("sglang::scheduler", Engine::Sglang, Role::Worker),
    ("sglang::gpu_worker", Engine::Sglang, Role::Worker),
    ("sglang::detoken", Engine::Sglang, Role::Detokenizer),
    ("sglang::tokenizer", Engine::Sglang, Role::Server),
    ("sglang::http", Engine::Sglang, Role::Server),
    ("sglang::data_parallel", Engine::Sglang, Role::Core),
    ("sglang::", Engine::Sglang, Role::Helper),
    ("trtllm-worker", Engine::TensorrtLlm, Role::Worker),
    ("ray::RayWorkerWrapper", Engine::Vllm, Role::Worker),
];

/// What a process is, by its words and its name alone.
pub fn recognise(process: &Process) -> Option<(Engine, Role)> {
    let words = process.cmdline.as_deref().unwrap_or_default();
    let first = words.first().map_or("", String::as_str);
    let fits = |title: &str| first.starts_with(title) || process.name.starts_with(title);
    let titled = TITLES.iter().find(|(title, ..)| fits(title));
    titled.map(|&(_, engine, role)| (engine, role)).or_else(|| by_program(words))
}

fn by_program(words: &[String]) -> Option<(Engine, Role)> {
    let (program, arguments) = program(words)?;
    let argument = arguments.first().map_or("", String::as_str);
    Some(match program {
        "vllm" if argument == "serve" => (Engine::Vllm, Role::Server),
        "vllm.entrypoints.openai.api_server" | "vllm.entrypoints.api_server" => {
            (Engine::Vllm, Role::Server)
        }
        "sglang.launch_server" => (Engine::Sglang, Role::Server),
        "sglang" if argument == "serve" => (Engine::Sglang, Role::Server),
        "trtllm-serve" => (Engine::TensorrtLlm, Role::Server),
        "trtllm-llmapi-launch" => (Engine::TensorrtLlm, Role::Launcher),
        "llama-server" | "llama_cpp.server" => (Engine::LlamaCpp, Role::Server),
        "text-generation-launcher" => (Engine::Tgi, Role::Launcher),
        "text-generation-router" => (Engine::Tgi, Role::Server),
        "text-generation-server" => (Engine::Tgi, Role::Worker),
        "ollama" if argument == "serve" => (Engine::Ollama, Role::Server),
        "ollama" if argument == "runner" => (Engine::Ollama, Role::Worker),
        "saccade" if argument == "serve" => (Engine::Saccade, Role::Launcher),
        "saccade" if argument == "frontend" => (Engine::Saccade, Role::Server),
        "saccade" if argument == "device" => (Engine::Saccade, Role::Worker),
        _ => return None,
    })
}

/// Programs that send load to servers.
const LOAD_CLIENTS: [&str; 15] = [
    "ab",
    "aiperf",
    "benchmark_serving.py",
    "genai-perf",
    "guidellm",
    "hey",
    "k6",
    "llmperf",
    "locust",
    "oha",
    "perf_analyzer",
    "sglang.bench_serving",
    "vegeta",
    "wrk",
    "wrk2",
];

/// Whether a process measures or watches servers. `saccade bench neighbour` is no client: it is
/// what a server is measured next to.
pub fn is_load_client(process: &Process) -> bool {
    let words = process.cmdline.as_deref().unwrap_or_default();
    let Some((program, arguments)) = program(words) else { return false };
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    match program {
        "saccade" => match argument(0) {
            "bench" => argument(1) != "neighbour",
            "top" => true,
            _ => false,
        },
        "vllm" => argument(0) == "bench",
        other => LOAD_CLIENTS.contains(&other),
    }
}

/// The program that runs, seen through an interpreter: `python -u /usr/bin/vllm serve` is `vllm`,
/// `python3 -m a.b` is `a.b`.
fn program(words: &[String]) -> Option<(&str, &[String])> {
    let first = file_name(words.first()?);
    if !first.starts_with("python") {
        return Some((first, &words[1..]));
    }
    let script = 1 + words[1..].iter().position(|w| w == "-m" || !w.starts_with('-'))?;
    if words[script] == "-m" {
        return Some((words.get(script + 1)?, &words[script + 2..]));
    }
    Some((file_name(&words[script]), &words[script + 1..]))
}

fn file_name(word: &str) -> &str {
    Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or(word)
}

/// A pool of threads, known by the names that libraries give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Hugging Face tokenizers and others that say so.
    Tokenizer,
    /// Rayon, which Hugging Face tokenizers run on.
    Rayon,
    /// OpenMP and BLAS.
    OpenMp,
    /// An asynchronous runtime's threads.
    Runtime,
    /// Threads that kept the name of their process.
    Unnamed,
}

impl Pool {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Pool::Tokenizer => "tokenizer",
            Pool::Rayon => "rayon (tokenizer)",
            Pool::OpenMp => "OpenMP/BLAS",
            Pool::Runtime => "async runtime",
            Pool::Unnamed => "compute",
        }
    }
}

/// What bounds the threads of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A flag of the engine.
    Flag(&'static str),
    /// A variable of its environment.
    Variable(&'static str),
}

impl Bound {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Flag(name) | Bound::Variable(name) => name,
        }
    }

    /// Whether it is a flag.
    pub fn is_flag(self) -> bool {
        matches!(self, Bound::Flag(_))
    }

    /// The change that sets it.
    pub fn at(self, threads: f64) -> Change {
        let (what, how) = match self {
            Bound::Flag(name) => ("restart it with", format!("{name} {threads:.0}")),
            Bound::Variable(name) => {
                ("in the server's environment, then restart", format!("{name}={threads:.0}"))
            }
        };
        Change { what: what.to_owned(), how }
    }
}

impl Engine {
    /// What bounds a pool of this engine; none that is known for some.
    pub fn bound(self, pool: Pool) -> Option<Bound> {
        match (self, pool) {
            (Engine::Saccade, Pool::Unnamed) => Some(Bound::Flag("--device-threads")),
            (Engine::Saccade, Pool::Tokenizer) => Some(Bound::Flag("--tokenizer-threads")),
            (Engine::Saccade, Pool::Runtime) => Some(Bound::Flag("--http-threads")),
            (Engine::LlamaCpp, Pool::Unnamed | Pool::OpenMp) => Some(Bound::Flag("--threads")),
            (Engine::Ollama, _) => None,
            (_, Pool::Tokenizer | Pool::Rayon) => Some(Bound::Variable("RAYON_NUM_THREADS")),
            (_, Pool::OpenMp | Pool::Unnamed) => Some(Bound::Variable("OMP_NUM_THREADS")),
            (_, Pool::Runtime) => Some(Bound::Variable("TOKIO_WORKER_THREADS")),
        }
    }
}

/// The change that keeps the computing and the tokenizing threads of an engine to `limit`.
pub fn thread_bounds(engine: Engine, limit: &str) -> Option<Change> {
    let mut names: Vec<&str> = Vec::new();
    for bound in [Pool::Unnamed, Pool::Tokenizer].iter().filter_map(|pool| engine.bound(*pool)) {
        if !names.contains(&bound.name()) {
            names.push(bound.name());
        }
    }
    let how = format!("{}: {limit}", names.join(" and "));
    (!names.is_empty()).then(|| Change { what: "or fewer threads".to_owned(), how })
}

/// The pool of a thread. `process_name` is the name of the process's first thread.
pub fn pool_of(thread: &str, process_name: &str) -> Option<Pool> {
    let lower = thread.to_lowercase();
    let has = |part: &str| lower.contains(part);
    if has("tokeniz") {
        Some(Pool::Tokenizer)
    } else if has("rayon") {
        Some(Pool::Rayon)
    } else if has("omp") || has("openblas") || has("mkl") {
        Some(Pool::OpenMp)
    } else if has("tokio") {
        Some(Pool::Runtime)
    } else if thread == process_name {
        Some(Pool::Unnamed)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(words: &[&str]) -> Option<(Engine, Role)> {
        recognise(&Process {
            pid: 1,
            ppid: 0,
            name: "x".into(),
            cmdline: Some(words.iter().map(|&w| w.to_owned()).collect()),
            start_ticks: 0,
            threads: None,
            user_ns: 0,
            system_ns: 0,
        })
    }

    #[test]
    fn command_lines_of_engines() {
        use Engine::*;
        use Role::*;
        for (words, expected) in [
            (&["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "m"][..], (Vllm, Server)),
            (&["python", "-u", "-m", "vllm.entrypoints.openai.api_server"], (Vllm, Server)),
            (&["VLLM::EngineCore_DP0"], (Vllm, Core)),
            (&["VLLM::Worker_TP3"], (Vllm, Worker)),
            (&["python3", "-m", "sglang.launch_server", "--model-path", "m"], (Sglang, Server)),
            (&["sglang::scheduler_TP0"], (Sglang, Worker)),
            (&["sglang::detokenizer"], (Sglang, Detokenizer)),
            (&["python", "/usr/local/bin/trtllm-serve", "m"], (TensorrtLlm, Server)),
            (&["./build/bin/llama-server", "-m", "x.gguf"], (LlamaCpp, Server)),
            (&["text-generation-router", "--port", "80"], (Tgi, Server)),
            (&["/usr/bin/ollama", "runner", "--model"], (Ollama, Worker)),
            (&["target/release/saccade", "serve"], (Saccade, Launcher)),
            (&["saccade", "frontend", "--ring", "r"], (Saccade, Server)),
        ] {
            assert_eq!(role(words), Some(expected), "{words:?}");
        }
    }

    #[test]
    fn what_only_mentions_an_engine_is_none() {
        for words in [
            &["grep", "vllm", "serve"][..],
            &["sh", "-c", "vllm serve m"],
            &["docker", "run", "vllm/vllm-openai:latest"],
            &["vim", "llama-server"],
            &["python", "-c", "import vllm"],
            &["vllm", "bench", "serve"],
            &["saccade", "doctor"],
            &["python"],
            &[],
        ] {
            assert_eq!(role(words), None, "{words:?}");
        }
    }
}
