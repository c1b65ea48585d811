"""Random weights whose logits are far from flat.

Plain initialisation gives logits so small that a wrong kernel hides in the noise, and greedy
choices that depend on the last bit. Here every part of a layer moves the logits visibly: queries and
keys are large enough for attention to choose, norms and biases are not trivial. Untied models also
get a planted successor for each token, which widens the greedy margins where a low-precision model
needs that.
"""

import torch

TIED_EMBED_STD = 0.12
# Probabilities of experts that differ, and few ties between the last that is picked and the next.
ROUTER_GAIN = 2.0


def fill(
    model: torch.nn.Module,
    seed: int,
    embed_std: float,
    logit_std: float,
    planted: float,
    silenced: set[int],
) -> None:
    """Overwrites all parameters of `model`, in the order of their names.

    embed_std: how much of the hidden state the last token itself is; the layers add about 1.
    logit_std: spread of the logits.
    planted: strength of the planted successors. silenced: ids that are hardly ever the best choice.
    """
    generator = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, tensor in sorted(model.named_parameters()):
            tensor.copy_(_random(name, tensor.shape, generator))
        embed = model.get_input_embeddings().weight
        if tied:
            # A large embedding would make every token its own successor: keep it small relative to
            # what the layers add, and let the final norm give the logits their size.
            embed.mul_(TIED_EMBED_STD)
            embed[sorted(silenced)] *= 0.2
            model.model.norm.weight.mul_(logit_std / TIED_EMBED_STD / embed.shape[1] ** 0.5)
            return
        head = model.get_output_embeddings().weight
        head.mul_(logit_std / head.shape[1] ** 0.5)
        # The token after t: one row of the head leans towards the embedding of t.
        successor = torch.randperm(embed.shape[0], generator=generator)
        head[successor] += planted * embed
        head[sorted(silenced)] *= 0.2
        embed.mul_(embed_std)


def _random(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1.0 + 0.2 * noise
    if name.endswith(".bias"):
        return 0.3 * noise
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        return noise
    gain = 1.2
    if name.endswith(("q_proj.weight", "k_proj.weight", "qkv_proj.weight")):
        gain = 1.6
    if name.endswith("mlp.gate.weight"):
        gain = ROUTER_GAIN
    return gain * noise / shape[-1] ** 0.5
