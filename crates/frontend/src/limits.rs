//! Every bound of the HTTP surface that is not a flag, in one place. A value outside is refused
//! with a 400 that names the field and the bound; nothing is clamped silently unless said here.

/// Fields in one JSON request object, known and unknown together.
pub const MAX_FIELDS: usize = 256;
/// Choices per prompt (`n`).
pub const MAX_N: i64 = 128;
/// Prompts in one completions request.
pub const MAX_PROMPTS: usize = 256;
/// Prompts times `n`: ring slots that one request may ask for.
pub const MAX_CHOICES: usize = 256;
/// Inputs of one embeddings request, as in the OpenAI API.
pub const MAX_EMBEDDING_INPUTS: usize = 2048;
/// Token ids in one prompt array; the model's own length limit is checked afterwards.
pub const MAX_PROMPT_IDS: usize = 1 << 22;
/// Chat messages in one request.
pub const MAX_MESSAGES: usize = 4096;
/// Parts in the content of one chat message.
pub const MAX_CONTENT_PARTS: usize = 1024;
/// Tools of one request.
pub const MAX_TOOLS: usize = 512;
/// JSON text of all tools of one request.
pub const MAX_TOOLS_BYTES: usize = 1 << 20;
/// Bytes of the name of a function.
pub const MAX_FUNCTION_NAME_BYTES: usize = 128;
/// Tool calls in one message of a conversation.
pub const MAX_MESSAGE_TOOL_CALLS: usize = 256;
/// Bytes of the id of a tool call.
pub const MAX_TOOL_CALL_ID_BYTES: usize = 256;
/// Bytes of a chat role or participant name.
pub const MAX_ROLE_BYTES: usize = 64;
/// Stop strings per request.
pub const MAX_STOP_STRINGS: usize = 32;
/// Bytes of one stop string: also what a stream may have to hold back.
pub const MAX_STOP_BYTES: usize = 1024;
/// Stop token ids per request (`SAC_MAX_STOP_IDS`).
pub const MAX_STOP_IDS: usize = 128;
/// Pairs in `logit_bias` (`SAC_MAX_LOGIT_BIAS`).
pub const MAX_LOGIT_BIAS: usize = 1024;
/// Bytes of JSON text of `logit_bias`: more than [`MAX_LOGIT_BIAS`] pairs ever need.
pub const MAX_LOGIT_BIAS_BYTES: usize = 128 * 1024;
/// Bytes of a JSON Schema, a regular expression or a grammar that an answer must obey.
pub const MAX_GRAMMAR_BYTES: usize = saccade_grammar::Limits::DEFAULT.source_bytes;
/// Texts of `structured_outputs.choice` or `guided_choice`.
pub const MAX_GRAMMAR_CHOICES: usize = 4096;
/// Compiled grammars that are kept for later requests. Each takes at most 1 MiB: its text, and what
/// the device has room for.
pub const MAX_KEPT_GRAMMARS: usize = 64;
/// Alternatives per token (`SAC_MAX_TOP_LOGPROBS`).
pub const MAX_TOP_LOGPROBS: i64 = 20;
/// Characters of `cache_salt`.
pub const MAX_CACHE_SALT_CHARS: usize = 1024;
/// Bytes of a model name in a request.
pub const MAX_MODEL_NAME_BYTES: usize = 1024;
/// Bytes of the name of a LoRA adapter.
pub const MAX_ADAPTER_NAME_BYTES: usize = 256;
/// Bytes of a request id, from the field or the `x-request-id` header.
pub const MAX_REQUEST_ID_BYTES: usize = 128;
/// JSON text of `chat_template_kwargs`.
pub const MAX_TEMPLATE_KWARGS_BYTES: usize = 64 * 1024;
/// Classes range from minus this to this.
pub const MAX_PRIORITY: i64 = 100;
/// Shortest SLO target that a request may name.
pub const MIN_SLO_MS: f64 = 1.0;
/// Longest SLO target that a request may name.
pub const MAX_SLO_MS: f64 = 3_600_000.0;
/// Instructions that one rendering of the chat template may execute.
pub const TEMPLATE_FUEL: u64 = 5_000_000;
/// Rendered bytes beyond four times the input that a template may write.
pub const TEMPLATE_OUTPUT_SLACK_BYTES: usize = 1 << 20;
/// Tokens buffered between the token reader and one stream; then the ring holds the request.
pub const MAILBOX_TOKENS: usize = 512;
/// Bytes of one accepted API key.
pub const MAX_API_KEY_BYTES: usize = 4096;
/// Below this temperature decoding is greedy, as in vLLM.
pub const GREEDY_TEMPERATURE: f64 = 1e-5;
/// Text, or a request's body, of at least this many bytes takes the lane of long prompts: about a
/// millisecond of parsing or tokenizing.
pub const LONG_TEXT_BYTES: usize = 64 * 1024;
/// Bytes of a request that are not charged to the memory for large requests: the number of
/// connections bounds these. What is under it is never refused because of others' large requests.
pub const UNCHARGED_BYTES: usize = LONG_TEXT_BYTES;
/// Nice value of the threads of that lane: a thread that has a token to deliver comes first.
pub const LONG_TEXT_NICE: i32 = 10;
/// Steps of the compiler that a grammar may take in that lane, about 0.1 s. Where more are allowed
/// (`--max-grammar-steps`) a grammar that needs them is compiled in spare time.
pub const GRAMMAR_STEPS: u64 = saccade_grammar::Limits::DEFAULT.fuel;
/// Processor time, microseconds per minute, in which a tenant's grammars are compiled in that lane.
/// Most grammars take some 1,500.
pub const GRAMMAR_US_PER_MINUTE: u64 = 250_000;
/// Nice value of the thread that compiles in spare time.
pub const SPARE_TIME_NICE: i32 = 19;
/// Bytes of a long prompt that are worth another thread.
pub const BYTES_PER_HELPER: usize = 128 * 1024;
