//! The series that are read, and nothing else is.

/// Histograms of latency, seconds. The first of each that a server has counts.
pub const TTFT: &[&str] = &["vllm:time_to_first_token_seconds"];
/// Between two tokens; the second is the name of older servers.
pub const TBT: &[&str] =
    &["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"];
/// From arrival to the last token.
pub const E2E: &[&str] = &["vllm:e2e_request_latency_seconds"];
/// Template and tokenizer, by prompt.
pub const TOKENIZE: &[&str] = &["saccade:tokenize_seconds"];
/// All histograms.
pub const HISTOGRAMS: [&[&str]; 4] = [TTFT, TBT, E2E, TOKENIZE];

/// Counters whose increase is shown.
pub const COUNTERS: [&str; 21] = [
    FINISHED,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    PREEMPTIONS,
    PREFILL_TOKENS,
    STEPS,
    STEP_S,
    HOST_WAIT_S,
    READER_WAIT_S,
    DETOKENIZE_S,
    RUN_S,
    RUN_QUEUE_WAIT_S,
    KV_BYTES,
    SLO_REQUESTS,
    PREFIX_QUERIES,
    PREFIX_HITS,
    EXTERNAL_QUERIES,
    EXTERNAL_HITS,
    FETCH_COMMANDS,
    FETCH_LOADED_BYTES,
    FETCH_STORED_BYTES,
];
pub const FINISHED: &str = "vllm:request_success_total";
pub const PROMPT_TOKENS: &str = "vllm:prompt_tokens_total";
pub const GENERATION_TOKENS: &str = "vllm:generation_tokens_total";
pub const PREEMPTIONS: &str = "vllm:num_preemptions_total";
pub const PREFIX_QUERIES: &str = "vllm:prefix_cache_queries_total";
pub const PREFIX_HITS: &str = "vllm:prefix_cache_hits_total";
pub const EXTERNAL_QUERIES: &str = "vllm:external_prefix_cache_queries_total";
pub const EXTERNAL_HITS: &str = "vllm:external_prefix_cache_hits_total";
pub const FETCH_COMMANDS: &str = "saccade:fetch_commands_total";
pub const FETCH_LOADED_BYTES: &str = "saccade:fetch_loaded_bytes_total";
pub const FETCH_STORED_BYTES: &str = "saccade:fetch_stored_bytes_total";
pub const PREFILL_TOKENS: &str = "saccade:device_prefill_tokens_total";
pub const STEPS: &str = "saccade:device_steps_total";
pub const STEP_S: &str = "saccade:device_step_seconds_total";
pub const HOST_WAIT_S: &str = "saccade:device_host_wait_seconds_total";
pub const READER_WAIT_S: &str = "saccade:device_reader_wait_seconds_total";
pub const DETOKENIZE_S: &str = "saccade:detokenize_seconds_total";
pub const RUN_S: &str = "saccade:run_seconds_total";
pub const RUN_QUEUE_WAIT_S: &str = "saccade:run_queue_wait_seconds_total";
pub const KV_BYTES: &str = "saccade:kv_bytes_total";
pub const SLO_REQUESTS: &str = "saccade:slo_requests_total";

pub const RUNNING: &str = "vllm:num_requests_running";
pub const WAITING: &str = "vllm:num_requests_waiting";
/// Share of the KV in use; the second is the name of older servers.
pub const KV_USAGE: &[&str] = &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"];
pub const CACHE_CONFIG: &str = "vllm:cache_config_info";
pub const SLOTS: &str = "saccade:slots";
pub const DEVICE_READY: &str = "saccade:device_ready";
pub const DEVICE_EPOCH: &str = "saccade:device_epoch";
pub const FRONTEND_EPOCH: &str = "saccade:frontend_epoch";
pub const PLANE_INFO: &str = "saccade:plane_info";
pub const PAUSED: &str = "saccade:device_paused_requests";
pub const STALLED: &str = "saccade:reader_stalled_requests";
pub const IN_FLIGHT: &str = "saccade:requests_in_flight";
pub const TOKENIZER_QUEUE: &str = "saccade:tokenizer_queue_depth";
pub const FETCH_FRAMES: &str = "saccade:fetch_frames";
pub const FETCH_FRAMES_USED: &str = "saccade:fetch_frames_used";
pub const FETCH_WAITING: &str = "saccade:fetch_stores_waiting";
pub const FETCH_ALIVE: &str = "saccade:fetch_plane_alive";
pub const FETCH_BREAKER: &str = "saccade:fetch_breaker";

/// Words of series that this version does not know and shows by their names: tiers of KV and the
/// lag of requests behind their targets.
pub const SHOWN_BY_NAME: [&str; 4] = ["tier", "vlt", "rotat", "prefix_store"];
