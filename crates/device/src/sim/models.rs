//! What a step of a model reads and computes, from its shape; and shapes by name.

use saccade_model::ModelConfig;

use super::SimModel;

/// The sizes that affect the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// Decoder layers.
    pub num_layers: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Width of the gated MLP of layers without experts.
    pub intermediate_size: u32,
    /// Query heads.
    pub num_heads: u32,
    /// Key/value heads.
    pub num_kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Rows of the embedding.
    pub vocab_size: u32,
    /// The embedding is the output projection as well.
    pub tied: bool,
    /// Layers that have experts.
    pub sparse_layers: u32,
    /// Experts of such a layer.
    pub num_experts: u32,
    /// Experts that a token goes through.
    pub experts_per_token: u32,
    /// Width of one expert.
    pub expert_size: u32,
}

/// A model by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedModel {
    /// As on the command line; compared ignoring case.
    pub name: &'static str,
    /// From its config.json.
    pub shape: ModelShape,
}

const fn dense(
    [num_layers, hidden_size, intermediate_size]: [u32; 3],
    [num_heads, num_kv_heads, head_dim]: [u32; 3],
    vocab_size: u32,
) -> ModelShape {
    ModelShape {
        num_layers,
        hidden_size,
        intermediate_size,
        num_heads,
        num_kv_heads,
        head_dim,
        vocab_size,
        tied: false,
        sparse_layers: 0,
        num_experts: 0,
        experts_per_token: 0,
        expert_size: 0,
    }
}

const fn with_experts(base: ModelShape, [experts, per_token, size]: [u32; 3]) -> ModelShape {
    ModelShape {
        sparse_layers: base.num_layers,
        num_experts: experts,
        experts_per_token: per_token,
        expert_size: size,
        ..base
    }
}

/// Sizes: config.json of each model at Hugging Face.
const MODELS: [NamedModel; 8] = [
    NamedModel { name: "Qwen2.5-32B", shape: dense([64, 5120, 27648], [40, 8, 128], 152_064) },
    NamedModel { name: "Qwen2.5-7B", shape: dense([28, 3584, 18944], [28, 4, 128], 152_064) },
    NamedModel { name: "Qwen3-32B", shape: dense([64, 5120, 25600], [64, 8, 128], 151_936) },
    NamedModel {
        name: "Qwen3-30B-A3B",
        shape: with_experts(dense([48, 2048, 6144], [32, 4, 128], 151_936), [128, 8, 768]),
    },
    NamedModel { name: "Llama-3-8B", shape: dense([32, 4096, 14336], [32, 8, 128], 128_256) },
    NamedModel { name: "Llama-3-70B", shape: dense([80, 8192, 28672], [64, 8, 128], 128_256) },
    NamedModel {
        name: "Mixtral-8x7B",
        shape: with_experts(dense([32, 4096, 14336], [32, 8, 128], 32_000), [8, 2, 14336]),
    },
    NamedModel { name: "Phi-4", shape: dense([40, 5120, 17920], [40, 10, 128], 100_352) },
];

/// All of them.
pub fn models() -> &'static [NamedModel] {
    &MODELS
}

/// By name, ignoring case; a hub id's owner and a suffix such as -Instruct do not matter.
pub fn model(name: &str) -> Option<&'static NamedModel> {
    let last = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let bare = last.trim_end_matches("-instruct").trim_end_matches("-v0.1");
    let bare = bare.trim_end_matches("-instruct").replace("meta-", "");
    MODELS.iter().find(|m| m.name.eq_ignore_ascii_case(&bare))
}

impl From<&ModelConfig> for ModelShape {
    fn from(c: &ModelConfig) -> ModelShape {
        let sparse = c.experts.as_ref().map(|e| e.sparse_layers.iter().sum()).unwrap_or(0);
        ModelShape {
            num_layers: c.num_layers,
            hidden_size: c.hidden_size,
            intermediate_size: c.intermediate_size,
            num_heads: c.num_heads,
            num_kv_heads: c.num_kv_heads,
            head_dim: c.head_dim,
            vocab_size: c.vocab_size,
            tied: c.tie_word_embeddings,
            sparse_layers: sparse,
            num_experts: c.experts.as_ref().map_or(0, |e| e.num_experts),
            experts_per_token: c.experts.as_ref().map_or(0, |e| e.experts_per_token),
            expert_size: c.experts.as_ref().map_or(0, |e| e.intermediate_size),
        }
    }
}

/// Projections of query, key, value and output.
fn attention_params(s: &ModelShape) -> f64 {
    let (hidden, head) = (f64::from(s.hidden_size), f64::from(s.head_dim));
    2.0 * hidden * head * (f64::from(s.num_heads) + f64::from(s.num_kv_heads))
}

fn expert_params(s: &ModelShape) -> f64 {
    3.0 * f64::from(s.hidden_size) * f64::from(s.expert_size)
}

impl ModelShape {
    /// Of one vocabulary-wide matrix.
    fn head_params(&self) -> f64 {
        f64::from(self.vocab_size) * f64::from(self.hidden_size)
    }

    /// All layers without experts' weights.
    fn dense_params(&self) -> f64 {
        let dense_layers = f64::from(self.num_layers - self.sparse_layers);
        let mlp = 3.0 * f64::from(self.hidden_size) * f64::from(self.intermediate_size);
        let router = f64::from(self.hidden_size) * f64::from(self.num_experts);
        f64::from(self.num_layers) * attention_params(self)
            + dense_layers * mlp
            + f64::from(self.sparse_layers) * router
    }

    /// Parameters, norms and biases left out.
    pub fn params(&self) -> f64 {
        let heads = if self.tied { 1.0 } else { 2.0 };
        let experts = f64::from(self.sparse_layers) * f64::from(self.num_experts);
        self.dense_params() + experts * expert_params(self) + heads * self.head_params()
    }

    /// Bytes of KV that a token takes in all layers.
    pub fn kv_token_bytes(&self, dtype_bytes: f64) -> f64 {
        let width = f64::from(self.num_kv_heads) * f64::from(self.head_dim);
        2.0 * f64::from(self.num_layers) * width * dtype_bytes
    }

    /// What a step costs, with weights in elements of `dtype_bytes` and KV in elements of
    /// `kv_dtype_bytes`.
    pub fn costs(&self, dtype_bytes: f64, kv_dtype_bytes: f64) -> SimModel {
        let sparse = f64::from(self.sparse_layers);
        let experts = sparse * expert_params(self);
        let width = f64::from(self.num_heads) * f64::from(self.head_dim);
        SimModel {
            dense_weight_bytes: self.dense_params() * dtype_bytes,
            expert_weight_bytes: experts * f64::from(self.num_experts) * dtype_bytes,
            head_weight_bytes: self.head_params() * dtype_bytes,
            row_flops: 2.0 * (self.dense_params() + experts * f64::from(self.experts_per_token)),
            head_flops: 2.0 * self.head_params(),
            attention_pair_flops: 4.0 * f64::from(self.num_layers) * width,
            kv_token_bytes: self.kv_token_bytes(kv_dtype_bytes),
            num_layers: self.num_layers,
            num_experts: self.num_experts,
            experts_per_token: self.experts_per_token,
            _pad0: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_those_of_the_model_cards() {
        // Billions, from the cards.
        let cards = [
            ("Qwen2.5-32B", 32.5),
            ("Qwen2.5-7B", 7.61),
            ("Qwen3-32B", 32.8),
            ("Qwen3-30B-A3B", 30.5),
            ("Llama-3-8B", 8.03),
            ("Llama-3-70B", 70.6),
            ("Mixtral-8x7B", 46.7),
            ("Phi-4", 14.7),
        ];
        assert_eq!(cards.len(), models().len());
        for (name, billions) in cards {
            let shape = model(name).expect("listed").shape;
            let ours = shape.params() / 1e9;
            assert!((ours / billions - 1.0).abs() < 0.01, "{name}: {ours} against {billions}");
        }
    }

    #[test]
    fn active_parameters_of_experts() {
        // Qwen3-30B-A3B: 3.3 billion active; Mixtral: 12.9.
        for (name, billions) in [("Qwen3-30B-A3B", 3.3), ("Mixtral-8x7B", 12.9)] {
            let shape = model(name).expect("listed").shape;
            let costs = shape.costs(2.0, 2.0);
            // The card counts embedding and head.
            let active = (costs.row_flops / 2.0 + 2.0 * shape.head_params()) / 1e9;
            assert!((active / billions - 1.0).abs() < 0.03, "{name}: {active}");
        }
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for name in ["qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct", "Qwen2.5-32B"] {
            assert_eq!(model(name).expect(name).name, "Qwen2.5-32B");
        }
        assert_eq!(model("meta-llama/Meta-Llama-3-8B-Instruct").expect("hub").name, "Llama-3-8B");
        let mixtral = model("mistralai/Mixtral-8x7B-Instruct-v0.1").expect("hub");
        assert_eq!(mixtral.name, "Mixtral-8x7B");
        assert!(model("gpt-2").is_none());
    }

    #[test]
    fn kv_of_qwen_is_a_quarter_mebibyte_per_token() {
        let shape = model("Qwen2.5-32B").expect("listed").shape;
        assert_eq!(shape.kv_token_bytes(2.0), 262_144.0);
    }
}
