//! Which tensors a configuration needs: role, name in Hugging Face checkpoints, shape.

use crate::config::ModelConfig;

/// What a tensor is for. The numbers are `SAC_TENSOR_*` of the device plane's control header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[allow(missing_docs)] // the names are the documentation; shapes stand in `expected_tensors`
pub enum TensorRole {
    Embed = 0,
    FinalNorm = 1,
    LmHead = 2,
    InputNorm = 3,
    PostNorm = 4,
    Q = 5,
    K = 6,
    V = 7,
    O = 8,
    Gate = 9,
    Up = 10,
    Down = 11,
    QBias = 12,
    KBias = 13,
    VBias = 14,
    OBias = 15,
    GateBias = 16,
    UpBias = 17,
    DownBias = 18,
    QNorm = 19,
    KNorm = 20,
}

impl TensorRole {
    /// The `SAC_TENSOR_*` number.
    pub fn code(self) -> u32 {
        self as u32
    }
}

/// Name of the embedding, which is the output projection as well when the two are tied.
pub(crate) const EMBED_NAME: &str = "model.embed_tokens.weight";
/// Name of the output projection.
pub(crate) const LM_HEAD_NAME: &str = "lm_head.weight";

/// One tensor that the weight files must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// What it is for.
    pub role: TensorRole,
    /// Decoder layer; 0 for the tensors outside of the layers.
    pub layer: u32,
    /// Full name in the checkpoint.
    pub name: String,
    /// `[out]` or `[out, in]`, row-major.
    pub shape: Vec<u64>,
}

/// Every tensor of `config`, in the order in which they are loaded.
pub fn expected_tensors(config: &ModelConfig) -> Vec<ExpectedTensor> {
    let hidden = u64::from(config.hidden_size);
    let table = vec![u64::from(config.vocab_size), hidden];
    let top = |role, name: &str, shape| ExpectedTensor { role, layer: 0, name: name.into(), shape };
    let mut tensors = vec![
        top(TensorRole::Embed, EMBED_NAME, table.clone()),
        top(TensorRole::FinalNorm, "model.norm.weight", vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        tensors.push(top(TensorRole::LmHead, LM_HEAD_NAME, table));
    }
    let parts = layer_parts(config);
    for layer in 0..config.num_layers {
        tensors.extend(parts.iter().map(|(role, suffix, shape)| ExpectedTensor {
            role: *role,
            layer,
            name: format!("model.layers.{layer}.{suffix}"),
            shape: shape.clone(),
        }));
    }
    tensors
}

type Part = (TensorRole, &'static str, Vec<u64>);

/// The tensors of one layer.
fn layer_parts(config: &ModelConfig) -> Vec<Part> {
    use TensorRole as R;
    let hidden = u64::from(config.hidden_size);
    let inner = u64::from(config.intermediate_size);
    let head_dim = u64::from(config.head_dim);
    let q = u64::from(config.num_heads) * head_dim;
    let kv = u64::from(config.num_kv_heads) * head_dim;
    let mut parts: Vec<Part> = vec![
        (R::InputNorm, "input_layernorm.weight", vec![hidden]),
        (R::PostNorm, "post_attention_layernorm.weight", vec![hidden]),
        (R::Q, "self_attn.q_proj.weight", vec![q, hidden]),
        (R::K, "self_attn.k_proj.weight", vec![kv, hidden]),
        (R::V, "self_attn.v_proj.weight", vec![kv, hidden]),
        (R::O, "self_attn.o_proj.weight", vec![hidden, q]),
        (R::Gate, "mlp.gate_proj.weight", vec![inner, hidden]),
        (R::Up, "mlp.up_proj.weight", vec![inner, hidden]),
        (R::Down, "mlp.down_proj.weight", vec![hidden, inner]),
    ];
    if config.biases.qkv {
        parts.push((R::QBias, "self_attn.q_proj.bias", vec![q]));
        parts.push((R::KBias, "self_attn.k_proj.bias", vec![kv]));
        parts.push((R::VBias, "self_attn.v_proj.bias", vec![kv]));
    }
    if config.biases.o {
        parts.push((R::OBias, "self_attn.o_proj.bias", vec![hidden]));
    }
    if config.biases.mlp {
        parts.push((R::GateBias, "mlp.gate_proj.bias", vec![inner]));
        parts.push((R::UpBias, "mlp.up_proj.bias", vec![inner]));
        parts.push((R::DownBias, "mlp.down_proj.bias", vec![hidden]));
    }
    if config.qk_norm {
        parts.push((R::QNorm, "self_attn.q_norm.weight", vec![head_dim]));
        parts.push((R::KNorm, "self_attn.k_norm.weight", vec![head_dim]));
    }
    parts
}
