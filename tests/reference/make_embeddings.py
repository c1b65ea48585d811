"""Makes the embeddings that Hugging Face transformers computes for the prompts of the reference models.

    python make_embeddings.py            all models
    python make_embeddings.py NAME ...   only these

Writes embeddings/NAME.json next to this file, for the prompts of expected/NAME.json; README.md describes both.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers

from cases import CASES, Case
from make_reference import Runner, load, rounded

HERE = Path(__file__).resolve().parent


class StateRunner(Runner):
    """As its base, but for the hidden states that the head would be given."""

    def step(self, tokens: list[int], cache: transformers.DynamicCache) -> torch.Tensor:
        ids = torch.tensor([tokens])
        output = self.model.get_decoder()(input_ids=ids, past_key_values=cache, use_cache=True)
        return output.last_hidden_state[0].float()


def make(case: Case) -> None:
    expected = json.loads((HERE / "expected" / f"{case.name}.json").read_text())
    runner = StateRunner(load(HERE / "models" / case.name, torch.float32), case.token_by_token)
    states = [runner.prefill(result["prompt"])[0][-1] for result in expected["results"]]
    value = {
        "model": case.name,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "embeddings": [state.tolist() for state in states],
    }
    (HERE / "embeddings").mkdir(exist_ok=True)
    text = json.dumps(rounded(value), separators=(",", ":"))
    (HERE / "embeddings" / f"{case.name}.json").write_text(text + "\n")
    sizes = [f"{state.abs().max().item():.2f}" for state in states]
    print(f"{case.name}: {len(states)} of {len(states[0])} values, largest {', '.join(sizes)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models to make; default: all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unknown = set(args.names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    for case in CASES:
        if not args.names or case.name in args.names:
            make(case)


if __name__ == "__main__":
    main()
