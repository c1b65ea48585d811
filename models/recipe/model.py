"""The network: a Llama decoder in plain PyTorch, written for fast training on a CPU.

Weight names are the Hugging Face ones, so that a checkpoint is exported by saving it.
"""

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = dict(
    vocab_size=4096,
    hidden_size=256,
    intermediate_size=640,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=2048,
)


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (x.float() * scale * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(c["hidden_size"], width, bias=False)
        self.k_proj = nn.Linear(c["hidden_size"], kv_width, bias=False)
        self.v_proj = nn.Linear(c["hidden_size"], kv_width, bias=False)
        self.o_proj = nn.Linear(width, c["hidden_size"], bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])


class Model(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.config = c
        self.model = Decoder(c)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= (2 * c["num_hidden_layers"]) ** 0.5
                nn.init.normal_(p, std=std)
        half = c["head_dim"] // 2
        inv = c["rope_theta"] ** (-torch.arange(half).float() / half)
        angle = torch.arange(c["max_position_embeddings"]).float()[:, None] * inv
        self.register_buffer("cos", angle.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angle.sin().bfloat16(), persistent=False)

    def forward(self, ids, targets):
        """Sum of the next-token losses; the logits are the tied embedding's."""
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        x = self.model.norm(x)
        logits = F.linear(x, self.model.embed_tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))
