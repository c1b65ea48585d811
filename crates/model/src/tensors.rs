//! Which tensors a configuration needs: role, name in Hugging Face checkpoints, shape.

use crate::config::ModelConfig;
use crate::experts::Experts;
use crate::family::Family;

/// What a tensor is for. The numbers are `SAC_TENSOR_*` of the device plane's control header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[allow(missing_docs)] // the names are the documentation; shapes are in `expected_tensors`
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
    Router = 21,
    ExpertGate = 22,
    ExpertUp = 23,
    ExpertDown = 24,
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
    /// Expert of the layer; 0 for the tensors outside of experts.
    pub expert: u32,
    /// Full name in the checkpoint.
    pub name: String,
    /// `[out]` or `[out, in]`, row-major.
    pub shape: Vec<u64>,
    /// First row of the stored tensor that is this one, in checkpoints that store several as one;
    /// and how many rows the stored tensor has.
    pub fused: Option<(u64, u64)>,
}

/// Every tensor of `config`, in the order in which they are loaded.
pub fn expected_tensors(config: &ModelConfig) -> Vec<ExpectedTensor> {
    let hidden = u64::from(config.hidden_size);
    let table = vec![u64::from(config.vocab_size), hidden];
    let mut list = List::default();
    list.push(TensorRole::Embed, EMBED_NAME, table.clone());
    list.push(TensorRole::FinalNorm, "model.norm.weight", vec![hidden]);
    if !config.tie_word_embeddings {
        list.push(TensorRole::LmHead, LM_HEAD_NAME, table);
    }
    for layer in 0..config.num_layers {
        list.layer = layer;
        list.prefix = format!("model.layers.{layer}.");
        push_attention(&mut list, config);
        let experts = config.experts.as_ref();
        match experts.filter(|experts| experts.sparse_layers[layer as usize] != 0) {
            Some(experts) => push_experts(&mut list, config, experts),
            None => push_mlp(&mut list, config),
        }
    }
    list.tensors
}

/// Tensors so far, and where the next ones belong.
#[derive(Default)]
struct List {
    tensors: Vec<ExpectedTensor>,
    prefix: String,
    layer: u32,
    expert: u32,
}

impl List {
    fn push(&mut self, role: TensorRole, suffix: &str, shape: Vec<u64>) {
        self.push_part(role, suffix, shape, None);
    }

    fn push_part(
        &mut self,
        role: TensorRole,
        suffix: &str,
        shape: Vec<u64>,
        fused: Option<(u64, u64)>,
    ) {
        let name = format!("{}{suffix}", self.prefix);
        let (layer, expert) = (self.layer, self.expert);
        self.tensors.push(ExpectedTensor { role, layer, expert, name, shape, fused });
    }

    /// Matrices that are stacked in one stored tensor.
    fn push_fused(&mut self, suffix: &str, cols: u64, parts: &[(TensorRole, u64)]) {
        let total = parts.iter().map(|(_, rows)| rows).sum();
        let mut first = 0;
        for (role, rows) in parts {
            self.push_part(*role, suffix, vec![*rows, cols], Some((first, total)));
            first += rows;
        }
    }
}

/// Norms and attention of one layer.
fn push_attention(list: &mut List, config: &ModelConfig) {
    use TensorRole as R;
    let hidden = u64::from(config.hidden_size);
    let head_dim = u64::from(config.head_dim);
    let q = u64::from(config.num_heads) * head_dim;
    let kv = u64::from(config.num_kv_heads) * head_dim;
    list.push(R::InputNorm, "input_layernorm.weight", vec![hidden]);
    list.push(R::PostNorm, "post_attention_layernorm.weight", vec![hidden]);
    if config.family == Family::Phi3 {
        let parts = [(R::Q, q), (R::K, kv), (R::V, kv)];
        list.push_fused("self_attn.qkv_proj.weight", hidden, &parts);
    } else {
        list.push(R::Q, "self_attn.q_proj.weight", vec![q, hidden]);
        list.push(R::K, "self_attn.k_proj.weight", vec![kv, hidden]);
        list.push(R::V, "self_attn.v_proj.weight", vec![kv, hidden]);
    }
    list.push(R::O, "self_attn.o_proj.weight", vec![hidden, q]);
    if config.biases.qkv {
        list.push(R::QBias, "self_attn.q_proj.bias", vec![q]);
        list.push(R::KBias, "self_attn.k_proj.bias", vec![kv]);
        list.push(R::VBias, "self_attn.v_proj.bias", vec![kv]);
    }
    if config.biases.o {
        list.push(R::OBias, "self_attn.o_proj.bias", vec![hidden]);
    }
    if config.qk_norm {
        list.push(R::QNorm, "self_attn.q_norm.weight", vec![head_dim]);
        list.push(R::KNorm, "self_attn.k_norm.weight", vec![head_dim]);
    }
}

/// The gated MLP of a layer without experts.
fn push_mlp(list: &mut List, config: &ModelConfig) {
    use TensorRole as R;
    let hidden = u64::from(config.hidden_size);
    let inner = u64::from(config.intermediate_size);
    if config.family == Family::Phi3 {
        let parts = [(R::Gate, inner), (R::Up, inner)];
        list.push_fused("mlp.gate_up_proj.weight", hidden, &parts);
    } else {
        list.push(R::Gate, "mlp.gate_proj.weight", vec![inner, hidden]);
        list.push(R::Up, "mlp.up_proj.weight", vec![inner, hidden]);
    }
    list.push(R::Down, "mlp.down_proj.weight", vec![hidden, inner]);
    if config.biases.mlp {
        list.push(R::GateBias, "mlp.gate_proj.bias", vec![inner]);
        list.push(R::UpBias, "mlp.up_proj.bias", vec![inner]);
        list.push(R::DownBias, "mlp.down_proj.bias", vec![hidden]);
    }
}

/// Router and experts of a layer.
fn push_experts(list: &mut List, config: &ModelConfig, experts: &Experts) {
    use TensorRole as R;
    let hidden = u64::from(config.hidden_size);
    let inner = u64::from(experts.intermediate_size);
    // What checkpoints call the block, and gate, up and down of an expert.
    let (block, [gate, up, down]) = match config.family {
        Family::Mixtral => ("block_sparse_moe", ["w1", "w3", "w2"]),
        _ => ("mlp", ["gate_proj", "up_proj", "down_proj"]),
    };
    let router = vec![u64::from(experts.num_experts), hidden];
    list.push(R::Router, &format!("{block}.gate.weight"), router);
    for expert in 0..experts.num_experts {
        list.expert = expert;
        let name = |part| format!("{block}.experts.{expert}.{part}.weight");
        list.push(R::ExpertGate, &name(gate), vec![inner, hidden]);
        list.push(R::ExpertUp, &name(up), vec![inner, hidden]);
        list.push(R::ExpertDown, &name(down), vec![hidden, inner]);
    }
    list.expert = 0;
}
