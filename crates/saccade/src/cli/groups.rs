//! The flags, by the plane that reads them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use saccade_frontend::limits::GRAMMAR_STEPS;
use saccade_frontend::{ParserChoice, ReasoningFormat, ToolFormat};
use saccade_host::CpuSet;
use saccade_ring::layout::SAC_MAX_GRAMMAR_WORDS;
use saccade_ring::remote::Way;

use super::policy::PolicyArgs;

/// The model that is served.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Folder of a Hugging Face model, or a hub id [default: the small model bundled with Saccade]
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// Same as MODEL
    #[arg(long = "model", value_name = "MODEL", env = "SACCADE_MODEL", id = "model_flag")]
    pub model_flag: Option<String>,
    /// Branch, tag or commit of a hub model
    #[arg(long, env = "SACCADE_REVISION")]
    pub revision: Option<String>,
    /// Names of the model in the API; answers carry the first [default: MODEL]
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', env = "SACCADE_SERVED_MODEL_NAME")]
    pub served_model_name: Vec<String>,
    /// Element type of weights and KV: auto, bfloat16, float16 (half), float32 (float)
    #[arg(long, default_value = "auto", env = "SACCADE_DTYPE")]
    pub dtype: String,
    /// Weight matrices in memory: none (the dtype, or FP8 where the model's files have it), int8 or
    /// fp8 (a scale per output and 128 inputs)
    #[arg(long, short, value_enum, default_value = "none", env = "SACCADE_QUANTIZATION")]
    pub quantization: QuantizationArg,
    /// Where weights come from
    #[arg(long, value_enum, default_value_t = LoadFormat::Auto, env = "SACCADE_LOAD_FORMAT")]
    pub load_format: LoadFormat,
    /// Folder for packed weights (--device cpu): the first start with a model writes them there, as
    /// large as in memory, and later starts map that file instead of packing [default: none]
    #[arg(long, value_name = "DIR", env = "SACCADE_PACKED_WEIGHTS_CACHE")]
    pub packed_weights_cache: Option<PathBuf>,
    /// Most tokens of a sequence, prompt and output [default: the model's, or what KV memory holds]
    #[arg(long, value_name = "TOKENS", env = "SACCADE_MAX_MODEL_LEN")]
    pub max_model_len: Option<u32>,
    /// Seed of dummy weights (--load-format dummy)
    #[arg(long, default_value_t = 0, env = "SACCADE_SEED")]
    pub seed: u64,
    /// File with a chat template that replaces the model's
    #[arg(long, value_name = "FILE", env = "SACCADE_CHAT_TEMPLATE")]
    pub chat_template: Option<PathBuf>,
    /// How the model writes tool calls: auto (as its chat template tells), none (they stay text),
    /// or one of the formats in docs/tool-calls.md
    #[arg(long, value_name = "NAME", default_value = "auto", env = "SACCADE_TOOL_CALL_PARSER")]
    pub tool_call_parser: ParserChoice<ToolFormat>,
    /// Do not start if it is not known how the model writes tool calls; otherwise requests with
    /// tools are refused then
    #[arg(long, env = "SACCADE_ENABLE_AUTO_TOOL_CHOICE")]
    pub enable_auto_tool_choice: bool,
    /// How the model marks its reasoning: auto (as its chat template tells), none (it stays text),
    /// or one of the formats in docs/tool-calls.md
    #[arg(long, value_name = "NAME", default_value = "auto", env = "SACCADE_REASONING_PARSER")]
    pub reasoning_parser: ParserChoice<ReasoningFormat>,
    /// tokenizer.json, or a folder with one, if not the model's
    #[arg(long, value_name = "PATH", env = "SACCADE_TOKENIZER")]
    pub tokenizer: Option<PathBuf>,
    /// Special tokens written in a message of a conversation: allow (they become these tokens, as
    /// in HF and vLLM) or escape (they are text)
    #[arg(long, value_enum, default_value_t = SpecialTokens::Allow, env = "SACCADE_SPECIAL_TOKENS_IN_CONTENT")]
    pub special_tokens_in_content: SpecialTokens,
    /// Draw every token of an answer under a grammar. By default the tokens of a text that the
    /// grammar leaves no choice of (names of members, say) are appended without a draw
    #[arg(long, env = "SACCADE_DISABLE_JUMP_FORWARD")]
    pub disable_jump_forward: bool,
    /// Steps that compiling a grammar may take, some ten nanoseconds and at most 32 bytes each; a
    /// grammar that takes more than 6000000 is compiled in spare time
    #[arg(long, value_name = "N", default_value_t = GRAMMAR_STEPS, value_parser = grammar_steps(), env = "SACCADE_MAX_GRAMMAR_STEPS")]
    pub max_grammar_steps: u64,
    /// Sampling defaults: auto (the model's generation_config.json) or vllm (none of the model)
    #[arg(long, default_value = "auto", value_parser = ["auto", "vllm"], env = "SACCADE_GENERATION_CONFIG")]
    pub generation_config: String,
    /// Local folder that the supervisor resolved MODEL to
    #[arg(long, hide = true, env = "SACCADE_MODEL_FOLDER")]
    pub model_folder: Option<PathBuf>,
}

impl ModelArgs {
    /// MODEL or --model.
    pub fn name(&self) -> Option<&str> {
        self.model.as_deref().or(self.model_flag.as_deref())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecialTokens {
    /// They are these tokens
    Allow,
    /// They are text
    Escape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuantizationArg {
    /// In the dtype
    None,
    /// 8 bits, symmetric
    Int8,
    /// e4m3, of the layers
    Fp8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadFormat {
    /// Same as safetensors
    Auto,
    /// *.safetensors of the model folder
    Safetensors,
    /// Random weights; only config.json and a tokenizer are needed
    Dummy,
}

/// How clients reach the server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct HttpArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", env = "SACCADE_HOST")]
    pub host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8000, env = "SACCADE_PORT")]
    pub port: u16,
    /// Unix socket to listen on instead of host and port; one that no server listens at is replaced
    #[arg(long, value_name = "PATH", env = "SACCADE_UDS")]
    pub uds: Option<PathBuf>,
    /// PEM file with the server's certificate and those up to its root: speaks HTTPS; read again
    /// when it changes
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile", env = "SACCADE_SSL_CERTFILE")]
    pub ssl_certfile: Option<PathBuf>,
    /// PEM file with the private key of --ssl-certfile
    #[arg(long, value_name = "FILE", requires = "ssl_certfile", env = "SACCADE_SSL_KEYFILE")]
    pub ssl_keyfile: Option<PathBuf>,
    /// PEM file with roots: clients must present a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "ssl_certfile", env = "SACCADE_SSL_CA_CERTS")]
    pub ssl_ca_certs: Option<PathBuf>,
    /// Listening socket that the supervisor made for its frontend planes
    #[arg(long, hide = true, env = "SACCADE_LISTEN_FD")]
    pub listen_fd: Option<i32>,
    /// Keys that clients must present, but for probes, metrics and the page; several are allowed
    #[arg(long, value_name = "KEY", num_args = 1.., value_delimiter = ',', env = "SACCADE_API_KEY", hide_env_values = true)]
    pub api_key: Vec<String>,
    /// File of keys as --api-key takes, one per line; read again when it changes
    #[arg(long, value_name = "FILE", env = "SACCADE_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,
    /// File of tenants: keys, what their requests may ask for, and how much at a time; read again
    /// when it changes (docs/tenants.md)
    #[arg(long, value_name = "FILE", env = "SACCADE_TENANTS")]
    pub tenants: Option<PathBuf>,
    /// Requests may name any priority, and targets tighter than --slo-ttft-ms and --slo-tpot-ms,
    /// where a tenant's entry does not say; else these are refused
    #[arg(long, env = "SACCADE_ENABLE_REQUEST_PRIORITY")]
    pub enable_request_priority: bool,
    /// Keep the prefixes of each key apart: requests with different keys share no KV
    #[arg(long, env = "SACCADE_CACHE_SALT_BY_KEY")]
    pub cache_salt_by_key: bool,
    /// Requests that may wait for the device before others get 429 [default: the free slots]
    #[arg(long, value_name = "N", env = "SACCADE_MAX_NUM_QUEUED_REQS")]
    pub max_num_queued_reqs: Option<usize>,
    /// Seconds that requests in flight get to end after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30, env = "SACCADE_DRAIN_TIMEOUT_S")]
    pub drain_timeout_s: u64,
    /// Seconds that a client may keep its answer waiting, beyond what it reads at
    /// --min-drain-bytes-per-s, before it is cut
    #[arg(long, value_name = "SECONDS", default_value_t = 30, env = "SACCADE_STALL_TIMEOUT_S")]
    pub stall_timeout_s: u64,
    /// Bytes per second that a client must read while more wait for it
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..), env = "SACCADE_MIN_DRAIN_BYTES_PER_S")]
    pub min_drain_bytes_per_s: u32,
    /// Seconds that a request may take, from its arrival on; 0: as long as its tokens take
    #[arg(long, value_name = "SECONDS", default_value_t = 0, env = "SACCADE_REQUEST_TIMEOUT_S")]
    pub request_timeout_s: u64,
    /// Seconds without a heartbeat after which the device counts as lost; must exceed a step. The
    /// supervisor replaces a device plane that has not computed either in that time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = hung_after_s(), env = "SACCADE_DEVICE_LOST_AFTER_S")]
    pub device_lost_after_s: u64,
    /// Hosts that requests may name in their Host field, or * [default: loopback names where the
    /// server listens on loopback without keys, which keeps pages of other names out; else any]
    #[arg(long, value_name = "HOST", num_args = 1.., value_delimiter = ',', env = "SACCADE_ALLOWED_HOSTS")]
    pub allowed_hosts: Vec<String>,
    /// File to which a line of JSON is appended for each request; - is standard error
    #[arg(long, value_name = "FILE", env = "SACCADE_ACCESS_LOG")]
    pub access_log: Option<PathBuf>,
    /// Share of the answers below 400 that have a line in --access-log; errors all have
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 1.0,
        env = "SACCADE_ACCESS_LOG_SAMPLE_RATE"
    )]
    pub access_log_sample_rate: f64,
    /// Collector that gets an OpenTelemetry span for each request, by OTLP over HTTP with
    /// protobuf, as http://HOST:4318 [default: none]
    #[arg(long, value_name = "URL", env = "SACCADE_OTLP_TRACES_ENDPOINT")]
    pub otlp_traces_endpoint: Option<String>,
    /// Origins that may use the API from a browser, or * [default: none but this server's page]
    #[arg(long, value_name = "ORIGIN", num_args = 1.., value_delimiter = ',', env = "SACCADE_ALLOWED_ORIGINS")]
    pub allowed_origins: Vec<String>,
    /// TTFT target of requests that name none, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = slo_ms(), env = "SACCADE_SLO_TTFT_MS")]
    pub slo_ttft_ms: u32,
    /// Target of the mean time per token of requests that name none, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = slo_ms(), env = "SACCADE_SLO_TPOT_MS")]
    pub slo_tpot_ms: u32,
    /// Do not serve the page at /
    #[arg(long, env = "SACCADE_DISABLE_UI")]
    pub disable_ui: bool,
    /// Largest request body, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 32 * 1024 * 1024, env = "SACCADE_MAX_BODY_BYTES")]
    pub max_body_bytes: usize,
    /// Connections of a frontend plane open at one time; what is beyond gets 503 [default: 8192, or
    /// what the limit of open files leaves room for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), env = "SACCADE_MAX_CONNECTIONS")]
    pub max_connections: Option<u64>,
    /// Threads that serve connections; one that is held up delays no other's streams
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, env = "SACCADE_HTTP_THREADS")]
    pub http_threads: usize,
    /// Threads that tokenize; as many more, of lower priority, take only long prompts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive, env = "SACCADE_TOKENIZER_THREADS")]
    pub tokenizer_threads: usize,
    /// Bytes of memory for the tokens of repeated texts, such as system prompts; 0: none
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, env = "SACCADE_TOKENIZER_CACHE_BYTES")]
    pub tokenizer_cache_bytes: usize,
    /// Microseconds that the token reader polls before it sleeps; for machines with cores to spare
    #[arg(long, value_name = "US", default_value_t = 0, env = "SACCADE_READER_SPIN_US")]
    pub reader_spin_us: u64,
    /// Longest sleep of the token reader while requests run, microseconds [default: until the
    /// device wakes it; 200 where it does not: --device cuda and a ring of another host]
    #[arg(long, value_name = "US", env = "SACCADE_READER_POLL_US")]
    pub reader_poll_us: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// Inference on CPU threads
    Cpu,
    /// Steps that only write tokens, to measure everything but the model
    Null,
    /// The same, paced by a cost model of an accelerator of this name
    Sim(String),
    /// Inference on a GPU
    Cuda,
    /// Steps that only write tokens, on a GPU: to measure everything but the model there
    CudaNull,
}

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        match (text, text.strip_prefix("sim:")) {
            ("cpu", _) => Ok(DeviceName::Cpu),
            ("null", _) => Ok(DeviceName::Null),
            ("cuda", _) => Ok(DeviceName::Cuda),
            ("cuda:null", _) => Ok(DeviceName::CudaNull),
            (_, Some(name)) if !name.is_empty() => Ok(DeviceName::Sim(name.to_owned())),
            _ => Err(format!("{text:?} is not cpu, null, cuda, cuda:null or sim:NAME")),
        }
    }
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Null => f.write_str("null"),
            DeviceName::Sim(name) => write!(f, "sim:{name}"),
            DeviceName::Cuda => f.write_str("cuda"),
            DeviceName::CudaNull => f.write_str("cuda:null"),
        }
    }
}

/// Names are vLLM's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvCacheDtype {
    /// The --dtype
    Auto,
    /// 8 bits, e4m3
    Fp8,
    /// The same
    #[value(name = "fp8_e4m3")]
    Fp8E4m3,
}

impl KvCacheDtype {
    /// As it is given to the flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fp8 => "fp8",
            Self::Fp8E4m3 => "fp8_e4m3",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefill {
    /// Chunks of prompts ride with the decodes, and end before the next tokens of streams are due
    /// by their TBT targets
    Paced,
    /// Chunks of prompts ride with the decodes, as long as --max-num-batched-tokens lets them be
    Chunked,
    /// Decodes pause while prompts are computed
    Inline,
}

/// 0 to 1048576 GiB.
fn kv_offloading_gib(text: &str) -> Result<f64, String> {
    let gib: f64 = text.parse().map_err(|e| format!("{e}"))?;
    let bounds = 0.0..=1_048_576.0;
    if bounds.contains(&gib) { Ok(gib) } else { Err("outside 0 .. 1048576".into()) }
}

/// The device plane.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Device plane")]
pub(crate) struct DeviceArgs {
    /// What runs the model: cpu, cuda (a GPU; docs/gpu.md says what has run on one), null or
    /// cuda:null (steps only write tokens), or sim:NAME (EMULATED: steps only write tokens, in the
    /// time that an accelerator of this name would take; see `saccade plan --list`)
    #[arg(long, value_name = "DEVICE", default_value = "cpu", env = "SACCADE_DEVICE")]
    pub device: DeviceName,
    /// Most requests computed together
    #[arg(long, value_name = "N", default_value_t = 256, env = "SACCADE_MAX_NUM_SEQS")]
    pub max_num_seqs: u32,
    /// Most tokens of one step: decodes, and chunks of prompts
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 512,
        env = "SACCADE_MAX_NUM_BATCHED_TOKENS"
    )]
    pub max_num_batched_tokens: u32,
    /// Tokens in a KV block: 8, 16, 32, 64 or 128
    #[arg(long, value_name = "TOKENS", default_value_t = 16, env = "SACCADE_BLOCK_SIZE")]
    pub block_size: u32,
    /// Elements of KV in memory: auto (the --dtype), or fp8, the same as fp8_e4m3 (half the bytes
    /// of 16 bits, less exact)
    #[arg(long, value_enum, default_value = "auto", env = "SACCADE_KV_CACHE_DTYPE")]
    pub kv_cache_dtype: KvCacheDtype,
    /// Bytes for KV blocks, also as 4G (GiB) or 4g (10^9) [default: a quarter of the memory that is
    /// free, at most 4 GiB; on a GPU what --gpu-memory-utilization leaves]
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = saccade_model::byte_size,
        env = "SACCADE_KV_CACHE_MEMORY_BYTES"
    )]
    pub kv_cache_memory_bytes: Option<u64>,
    /// GiB of host memory for KV blocks of requests that gave up their device memory; 0: they are
    /// computed again
    #[arg(
        long,
        value_name = "GIB",
        default_value_t = 0.0,
        value_parser = kv_offloading_gib,
        env = "SACCADE_KV_OFFLOADING_SIZE"
    )]
    pub kv_offloading_size: f64,
    /// KiB of device memory in each seat for the grammar of an answer; a larger grammar is refused
    #[arg(long, value_name = "KIB", default_value_t = 128, value_parser = grammar_kib(), env = "SACCADE_MAX_GRAMMAR_KIB")]
    pub max_grammar_kib: u32,
    /// Number of KV blocks, in place of a size in bytes
    #[arg(long, value_name = "N", env = "SACCADE_NUM_GPU_BLOCKS_OVERRIDE")]
    pub num_gpu_blocks_override: Option<u32>,
    /// Keep the KV of prompts and answers, and use it for prompts that begin alike (the default)
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        overrides_with = "no_enable_prefix_caching",
        env = "SACCADE_ENABLE_PREFIX_CACHING"
    )]
    pub enable_prefix_caching: Option<bool>,
    /// Compute every prompt in full
    #[arg(
        long,
        overrides_with = "enable_prefix_caching",
        env = "SACCADE_NO_ENABLE_PREFIX_CACHING"
    )]
    pub no_enable_prefix_caching: bool,
    /// How prompts share the device with decodes
    #[arg(long, value_enum, default_value_t = Prefill::Paced, env = "SACCADE_PREFILL_POLICY")]
    pub prefill_policy: Prefill,
    /// Overlap nothing with a step: slower, with the same tokens
    #[arg(long, env = "SACCADE_SERIAL")]
    pub serial: bool,
    /// Compute threads [default: the cores that the device plane may use]
    #[arg(long, value_name = "N", env = "SACCADE_DEVICE_THREADS")]
    pub device_threads: Option<u32>,
    /// Microseconds that a step of --device null takes
    #[arg(long, value_name = "US", default_value_t = 0, env = "SACCADE_NULL_STEP_US")]
    pub null_step_us: u32,
    #[command(flatten)]
    pub policy: PolicyArgs,
}

impl HttpArgs {
    /// The server's identity, if it speaks HTTPS.
    pub fn tls(&self) -> Option<saccade_frontend::TlsFiles> {
        let (certificates, key) = self.ssl_certfile.clone().zip(self.ssl_keyfile.clone())?;
        Some(saccade_frontend::TlsFiles {
            certificates,
            key,
            client_roots: self.ssl_ca_certs.clone(),
        })
    }

    /// Where a server with these flags listens, in readable form.
    #[cfg(feature = "device")]
    pub fn address_of(&self, listening: &saccade_frontend::Listening) -> String {
        let address = listening.address();
        if self.tls().is_some() { address.replacen("http://", "https://", 1) } else { address }
    }

    /// Whether clients must present one.
    pub fn has_keys(&self) -> bool {
        !self.api_key.is_empty() || self.api_key_file.is_some() || self.tenants.is_some()
    }

    /// # Errors
    /// A flag that needs another one.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.cache_salt_by_key || self.has_keys(),
            "--cache-salt-by-key: there are no keys to tell requests apart by (--api-key)"
        );
        Ok(())
    }
}

impl DeviceArgs {
    /// Whether prompts that begin alike share KV.
    ///
    /// # Errors
    /// A flag and a variable, or two variables, contradict each other; of two flags the last one
    /// counts.
    #[cfg(feature = "device")]
    pub fn shares_prefixes(&self) -> anyhow::Result<bool> {
        let (asked, refused) = (self.enable_prefix_caching, self.no_enable_prefix_caching);
        anyhow::ensure!(
            !(asked == Some(true) && refused),
            "--enable-prefix-caching and --no-enable-prefix-caching: both are asked for \
             (by a flag, a variable or --config)"
        );
        Ok(!refused && asked != Some(false))
    }
}

/// Where the planes run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Placement")]
pub(crate) struct PlacementArgs {
    /// Cores of the device plane, as 0-3,6 [default: all]
    #[arg(long, value_name = "CORES", value_parser = CpuSet::from_flag, env = "SACCADE_DEVICE_CORES")]
    pub device_cores: Option<CpuSet>,
    /// Cores of the frontend planes [default: all]
    #[arg(long, value_name = "CORES", value_parser = CpuSet::from_flag, env = "SACCADE_FRONTEND_CORES")]
    pub frontend_cores: Option<CpuSet>,
    /// How often a plane may die in a row, without ten seconds of service between, before the
    /// server gives up
    #[arg(long, value_name = "N", default_value_t = 8, env = "SACCADE_MAX_RESTARTS")]
    pub max_restarts: usize,
    /// Longest pause before a plane that has died in a row is started again, milliseconds. The
    /// pauses are 0, 100, 200, 400 and so on up to this
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(..=3_600_000), env = "SACCADE_MAX_RESTART_PAUSE_MS")]
    pub max_restart_pause_ms: u64,
    /// Seconds without a heartbeat after which a device plane that computes counts as hung, and is
    /// replaced; must exceed any step. Also for planes that load and do not compute
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = hung_after_s(), env = "SACCADE_DEVICE_HUNG_AFTER_S")]
    pub device_hung_after_s: u64,
    /// Seconds without a heartbeat after which a frontend plane counts as hung, and is replaced
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = hung_after_s(), env = "SACCADE_FRONTEND_HUNG_AFTER_S")]
    pub frontend_hung_after_s: u64,
    /// Nice value of the device plane (negative needs the right to)
    #[arg(long, value_name = "NICE", allow_hyphen_values = true, default_value_t = 0, value_parser = clap::value_parser!(i32).range(-20..=19), env = "SACCADE_DEVICE_NICE")]
    pub device_nice: i32,
}

/// Where a ring region is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RingPlace {
    /// In a file of this host.
    File(PathBuf),
    /// At HOST:PORT, where a device plane with `--ring-listen` hands it out.
    Remote(Way, String),
}

impl std::str::FromStr for RingPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<RingPlace, String> {
        match text.split_once("://") {
            None if text.is_empty() => Err("names no file".into()),
            None => Ok(RingPlace::File(text.into())),
            Some((scheme, address)) => match Way::of_scheme(scheme) {
                Some(way) => Ok(RingPlace::Remote(way, host_port(address)?)),
                None => Err(format!("{scheme}:// is not tcp://, ucx://, or a file")),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingMemory {
    /// Of this host
    Host,
    /// Of the GPU: a NIC writes and reads it by GPUDirect RDMA
    Device,
}

/// HOST:PORT, resolved when it is used.
pub(super) fn host_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        _ => Err(format!("{text:?} is not HOST:PORT")),
    }
}

/// The ring between the planes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Ring")]
pub(crate) struct RingArgs {
    /// File of the ring region; on another host tcp://HOST:PORT, or for RDMA ucx://HOST:PORT: a
    /// device plane with --ring-listen for a frontend plane, with --fetch-listen for a fetch plane
    /// (docs/ring.md) [default: a new file in shared memory]
    #[arg(long, value_name = "PLACE", env = "SACCADE_RING")]
    pub ring: Option<RingPlace>,
    /// Address at which the device plane offers its ring to frontend planes on other hosts; one
    /// that other hosts reach needs --ring-secret-file. The data that follows is not encrypted:
    /// keep it on a private network (docs/ring.md) [default: none]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port, env = "SACCADE_RING_LISTEN")]
    pub ring_listen: Option<String>,
    /// File with a secret, at least 32 random bytes (`head -c 32 /dev/urandom > FILE`), that only
    /// its owner may access: planes of other hosts must prove that they know it, and the device
    /// plane proves it to them. The same on both sides; read again when it changes [default: none]
    #[arg(long, value_name = "FILE", env = "SACCADE_RING_SECRET_FILE")]
    pub ring_secret_file: Option<PathBuf>,
    /// Frontend planes that join from other hosts, beside those of --api-server-count; their
    /// indices follow those
    #[arg(long, value_name = "N", default_value_t = 0, env = "SACCADE_REMOTE_FRONTENDS")]
    pub remote_frontends: u32,
    /// Memory that holds the ring: this host's, or the GPU's, which only frontend planes that join
    /// by --ring-listen reach (docs/ring.md)
    #[arg(long, value_enum, default_value_t = RingMemory::Host, env = "SACCADE_RING_MEMORY")]
    pub ring_memory: RingMemory,
    /// Slots of the ring: requests that run or wait
    #[arg(long, value_name = "N", default_value_t = 4096, env = "SACCADE_RING_SLOTS")]
    pub ring_slots: u32,
    /// 8-byte words of output per slot that may wait for the reader. An embedding takes half as
    /// many as the model's hidden size, all at once [default: 256, or what an embedding takes]
    #[arg(long, value_name = "WORDS", env = "SACCADE_OUT_RING_WORDS")]
    pub out_ring_words: Option<u32>,
    /// Bytes for prompts of requests that wait
    #[arg(long, value_name = "BYTES", default_value_t = 32 * 1024 * 1024, env = "SACCADE_ARENA_BYTES")]
    pub arena_bytes: u64,
    /// Frontend planes of this host that share the device
    #[arg(long, value_name = "N", default_value_t = 1, env = "SACCADE_API_SERVER_COUNT")]
    pub api_server_count: u32,
    /// Index of this frontend plane among those of the ring, from 0 (`saccade frontend`)
    #[arg(long, value_name = "N", default_value_t = 0, env = "SACCADE_FRONTEND_INDEX")]
    pub frontend_index: u32,
}

impl RingArgs {
    /// The region's file, if one is named.
    ///
    /// # Errors
    /// The ring is on another host.
    #[cfg(feature = "device")]
    pub fn file(&self) -> anyhow::Result<Option<&std::path::Path>> {
        match &self.ring {
            None => Ok(None),
            Some(RingPlace::File(path)) => Ok(Some(path)),
            Some(RingPlace::Remote(way, address)) => {
                anyhow::bail!(
                    "--ring {}://{address}: only a frontend plane or a fetch plane joins a ring of another host",
                    way.scheme()
                )
            }
        }
    }
}

/// What requests may name as well.
fn slo_ms() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=3_600_000)
}

/// What a seat may hold of a grammar.
fn grammar_kib() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(SAC_MAX_GRAMMAR_WORDS / 256))
}

/// Up to a second of a processor, or a few.
fn grammar_steps() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(10_000..=100_000_000)
}

/// A second to a day.
fn hung_after_s() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=86_400)
}

/// A count of at least one.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err(format!("{text:?} is not a number in 1 .. 1024")),
    }
}
