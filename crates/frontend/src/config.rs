//! What the caller decides about a frontend.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saccade_parsers::{ReasoningFormat, ToolFormat};

use crate::http::{AccessLogConfig, TlsFiles};
use crate::traces::TracesConfig;

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A TCP address; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A UNIX socket; one that no server listens at any more is replaced.
    Unix(PathBuf),
    /// A listening socket that another process made for this frontend, and maybe for others.
    Inherited(Arc<OwnedFd>),
}

/// Everything about one frontend but its ring. `Default` is what `saccade serve` does without
/// flags, except for [`model`](Self::model), which has no default.
#[derive(Debug, Clone)]
pub struct FrontendConfig {
    /// Where to listen. `--host`, `--port`, `--uds`
    pub listen: Listen,
    /// The server's certificate and key; `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// A line of JSON for each request. `None`: none. `--access-log`
    pub access_log: Option<AccessLogConfig>,
    /// A span for each request of the API. `None`: none. `--otlp-traces-endpoint`
    pub traces: Option<TracesConfig>,
    /// Which of the region's frontends this is.
    pub frontend_index: u32,
    /// Model folder or hub id, for the tokenizer, the chat template and the generation defaults.
    pub model: String,
    /// tokenizer.json, or a folder with one, if not the model's. `--tokenizer`
    pub tokenizer: Option<PathBuf>,
    /// Branch, tag or commit of a hub model. `--revision`
    pub revision: Option<String>,
    /// Names that requests may use; the first one is reported. Empty: the model's name as given.
    /// `--served-model-name`
    pub served_model_names: Vec<String>,
    /// LoRA adapters that requests may name as their model, in the device's order.
    /// `--lora-modules`
    pub adapters: Vec<Adapter>,
    /// Adapters that may be in memory, for `vllm:lora_requests_info`. `None`: as many as there are.
    /// `--max-loras`
    pub max_adapters: Option<u32>,
    /// Hosts that requests may name in their Host field, or `*`. Empty: loopback names if it
    /// listens on loopback without keys, else any. `--allowed-hosts`
    pub allowed_hosts: Vec<String>,
    /// Requests to all paths but probes, metrics and the page must carry one of these keys as a
    /// bearer token. Empty: none.
    /// `--api-key`
    pub api_keys: Vec<String>,
    /// A file of such keys, one per line, read again when it changes. `--api-key-file`
    pub api_key_file: Option<PathBuf>,
    /// A file of tenants, with their keys and limits, read again when it changes. `--tenants`
    pub tenants: Option<PathBuf>,
    /// Requests whose tenant does not say may name any class, and targets tighter than the
    /// server's. `--enable-request-priority`
    pub request_priority: bool,
    /// Requests with different keys share no prefix; needs keys. `--cache-salt-by-key`
    pub cache_salt_by_key: bool,
    /// Chat template file that replaces the model's. `--chat-template`
    pub chat_template: Option<PathBuf>,
    /// How the model writes tool calls. `--tool-call-parser`
    pub tool_call_parser: ParserChoice<ToolFormat>,
    /// Without a format of tool calls the frontend does not start. `--enable-auto-tool-choice`
    pub require_tool_calls: bool,
    /// How the model marks its reasoning. `--reasoning-parser`
    pub reasoning_parser: ParserChoice<ReasoningFormat>,
    /// Special tokens that are written in a message of a conversation are text like any other, not
    /// these tokens. `--special-tokens-in-content escape`
    pub escape_special_tokens: bool,
    /// Where a grammar leaves one text only, its tokens are appended without a draw.
    /// `--disable-jump-forward` is `false`.
    pub jump_forward: bool,
    /// Steps that compiling a grammar may take. Those beyond
    /// [`GRAMMAR_STEPS`](crate::limits::GRAMMAR_STEPS) are taken in spare time.
    /// `--max-grammar-steps`
    pub max_grammar_steps: u64,
    /// Use the sampling defaults of generation_config.json. `--generation-config vllm` is `false`.
    pub generation_config: bool,
    /// The device's scheduling policy has classes; otherwise only priority 0 is accepted.
    /// `--scheduling-policy goodput`
    pub priority_scheduling: bool,
    /// Requests that may wait for a seat on the device; beyond that the answer is 429, even if a
    /// slot is free. `None`: as many as slots. `--max-num-queued-reqs`
    pub max_num_queued_reqs: Option<usize>,
    /// Targets for requests that name none; used for the share of requests that meet them.
    pub slo: SloDefaults,
    /// Cross-origin requests. `--allowed-origins` and so on
    pub cors: Cors,
    /// Threads that serve connections, each on its own: what holds up one of them holds up the
    /// streams of its connections only. `--http-threads`
    pub http_threads: usize,
    /// Threads for templates and tokenization, and as many again for long prompts only.
    /// `--tokenizer-threads`
    pub tokenizer_threads: usize,
    /// Byte limit of the cache of tokenized texts; 0: no cache. `--tokenizer-cache-bytes`
    pub tokenizer_cache_bytes: usize,
    /// Jobs of each kind that may wait for these threads; beyond that the answer is 429.
    pub tokenizer_queue: usize,
    /// How long the token reader polls after the last token before it sleeps. 0 sleeps at once:
    /// right where cores are scarce.
    pub reader_spin: Duration,
    /// Longest sleep of the token reader while requests run, if the device does not wake it.
    pub reader_poll: Option<Duration>,
    /// Bounds of the HTTP side.
    pub http: HttpLimits,
    /// How long a request may take, from its arrival on. `None`: as long as its tokens take.
    /// `--request-timeout-s`
    pub request_timeout: Option<Duration>,
    /// How long requests in flight may take to end once draining has begun.
    pub drain_timeout: Duration,
    /// The device is lost once its heartbeat has not moved for this long.
    pub device_lost_after: Duration,
    /// Serve the page at `/`.
    pub ui: bool,
    /// How the device keeps KV, for `vllm:cache_config_info`. `--kv-cache-dtype`
    pub kv_cache_dtype: &'static str,
}

/// A LoRA adapter that the device has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// What requests name.
    pub name: String,
    /// Where it is, as the operator wrote it.
    pub path: String,
    /// The model that it belongs to, as `/v1/models` shows it. `None`: the first served name.
    pub base_model: Option<String>,
}

/// Which format a parser reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ParserChoice<T> {
    /// The one that the chat template tells, if it tells one.
    #[default]
    Auto,
    /// Text stays text.
    None,
    /// This one.
    Format(T),
}

impl<T: std::str::FromStr<Err = String>> std::str::FromStr for ParserChoice<T> {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            name => name.parse().map(Self::Format),
        }
    }
}

/// SLO targets in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SloDefaults {
    /// Time to the first token.
    pub ttft_s: f32,
    /// Time per produced token.
    pub tpot_s: f32,
}

/// Cross-origin settings, as vLLM names them. No origin: no CORS headers at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cors {
    /// Origins, or `*`.
    pub allowed_origins: Vec<String>,
    /// Methods, or `*`. Empty: `*`.
    pub allowed_methods: Vec<String>,
    /// Headers, or `*`. Empty: `*`.
    pub allowed_headers: Vec<String>,
    /// Allow credentials; not together with `*`.
    pub allow_credentials: bool,
}

/// Bounds of the HTTP side; each one is a defence against a misbehaving client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Open connections, beyond which a new one is answered 503 and closed.
    pub max_connections: usize,
    /// Bytes of a request's head.
    pub max_header_bytes: usize,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// Bytes that requests hold beyond their first 64 KiB each, all together: bodies until they are
    /// parsed, prompts, and answers of `/tokenize`. What would exceed it is answered 429.
    pub max_body_bytes_total: usize,
    /// Time for a request's head; also how long a connection may idle before its next request.
    pub header_read_timeout: Duration,
    /// Time for a request's body, from its head on.
    pub body_read_timeout: Duration,
    /// How long a connection may keep writes waiting, beyond what the bytes that it takes are worth
    /// at `least_bytes_per_s`, before it is cut.
    pub stall_timeout: Duration,
    /// Rate at which a client must read what waits for it.
    pub least_bytes_per_s: u32,
    /// Silence on a stream after which a comment is sent.
    pub keep_alive_interval: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_connections: 8192,
            max_header_bytes: 64 * 1024,
            max_body_bytes: 32 * 1024 * 1024,
            max_body_bytes_total: 512 * 1024 * 1024,
            header_read_timeout: Duration::from_secs(30),
            body_read_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
            least_bytes_per_s: 1024,
            keep_alive_interval: Duration::from_secs(15),
        }
    }
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self {
            listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 8000))),
            tls: None,
            access_log: None,
            traces: None,
            frontend_index: 0,
            model: String::new(),
            tokenizer: None,
            revision: None,
            served_model_names: Vec::new(),
            adapters: Vec::new(),
            max_adapters: None,
            allowed_hosts: Vec::new(),
            api_keys: Vec::new(),
            api_key_file: None,
            tenants: None,
            request_priority: false,
            cache_salt_by_key: false,
            chat_template: None,
            tool_call_parser: ParserChoice::Auto,
            require_tool_calls: false,
            reasoning_parser: ParserChoice::Auto,
            escape_special_tokens: false,
            jump_forward: true,
            max_grammar_steps: crate::limits::GRAMMAR_STEPS,
            generation_config: true,
            priority_scheduling: false,
            max_num_queued_reqs: None,
            slo: SloDefaults { ttft_s: 5.0, tpot_s: 0.1 },
            cors: Cors::default(),
            http_threads: 1,
            tokenizer_threads: 2,
            tokenizer_cache_bytes: 64 << 20,
            tokenizer_queue: 1024,
            reader_spin: Duration::ZERO,
            reader_poll: None,
            http: HttpLimits::default(),
            request_timeout: None,
            drain_timeout: Duration::from_secs(30),
            device_lost_after: Duration::from_secs(3),
            ui: true,
            kv_cache_dtype: "auto",
        }
    }
}
