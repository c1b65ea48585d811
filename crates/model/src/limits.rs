//! The bounds that every number of a model is checked against. With them no product of two or three
//! sizes overflows a `u64`, and none of the tables that follow from them is absurdly large.

/// Decoder layers.
pub const MAX_LAYERS: u32 = 1024;
/// `hidden_size`.
pub const MAX_HIDDEN_SIZE: u32 = 1 << 16;
/// `intermediate_size`.
pub const MAX_INTERMEDIATE_SIZE: u32 = 1 << 20;
/// Query heads (and so key/value heads).
pub const MAX_HEADS: u32 = 1024;
/// Experts of a layer.
pub const MAX_EXPERTS: u32 = 1024;
/// Elements of one head; head sizes are even as well.
pub const MAX_HEAD_DIM: u32 = 1024;
/// Entries of the vocabulary.
pub const MAX_VOCAB_SIZE: u32 = 1 << 22;
/// Positions. All of them are exact in f32, which rotary angles are computed in.
pub const MAX_POSITIONS: u32 = 1 << 24;
/// End-of-sequence ids, as `sac_device_config` takes them.
pub const MAX_EOS_IDS: usize = 16;
/// Largest rotary base.
pub const MAX_ROPE_THETA: f64 = 1e12;
/// Largest rotary scaling factor.
pub const MAX_ROPE_FACTOR: f64 = 1e6;
/// Largest `rms_norm_eps`.
pub const MAX_RMS_NORM_EPS: f64 = 1.0;
/// Bytes of config.json, generation_config.json and chat template files.
pub const MAX_CONFIG_BYTES: u64 = 4 << 20;
/// Bytes of tokenizer_config.json (it can hold thousands of added tokens) and of a weight index.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;
/// Rank of an adapter, as the device plane takes it.
pub const MAX_ADAPTER_RANK: u32 = 512;
/// Files that a weight index may name.
pub const MAX_SHARDS: usize = 4096;
