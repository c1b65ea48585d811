"""Train the model on the CPU, in a given number of minutes; restartable.

    python train.py --minutes 50 [--threads 2]

The learning rate follows the share of the time that is used up (warm-up, flat, then down to zero),
so that the run ends well however busy the machine is. The weights that are exported are a running
average. `last.pt` in CHECKPOINTS holds everything; starting again continues from it.
"""

import argparse
import ctypes
import json
import math
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # be a good neighbour: do not spin
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages for tensors

import numpy as np
import torch
from safetensors.torch import load_file

from model import Model
from paths import CHECKPOINTS, DATA

ROWS, LENGTH = 8, 512  # 4096 tokens a step
CHAT_SHARE = 0.7
WARM_UP, DECAY = 0.02, 0.45  # shares of the run


def keep_memory():
    """Let malloc keep what is freed: giving large tensors back to the kernel at each step, and
    faulting them in again, took more time than the arithmetic."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


def rate(progress):
    """The learning rate's factor at this share of the run."""
    if progress < WARM_UP:
        return max(progress / WARM_UP, 0.02)
    if progress > 1 - DECAY:
        return max((1 - progress) / DECAY, 0.0)
    return 1.0


def windows(ids, rng, count):
    at = rng.integers(0, len(ids) - LENGTH - 1, (count, 1))
    return ids[at + np.arange(LENGTH + 1)].astype(np.int64)


def evaluate(model, sets):
    losses = {}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for name, ids in sets.items():
            rows = [ids[i:i + LENGTH + 1] for i in range(0, len(ids) - LENGTH, LENGTH)]
            rows = np.stack(rows[:112]).astype(np.int64)
            parts = [
                model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()).item()
                for batch in torch.from_numpy(rows).split(ROWS)
            ]
            losses[name] = sum(parts) / len(parts)
    return losses


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--minutes", type=float, default=50)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rate", type=float, default=3e-3)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--start", type=Path, help="a model folder whose weights a run without a checkpoint starts from")
    args = args.parse_args()

    keep_memory()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    prose, chat = (np.fromfile(DATA / f"{n}.bin", np.uint16) for n in ("prose", "chat"))
    held = {n: np.fromfile(DATA / f"{n}.bin", np.uint16) for n in ("val_prose", "val_chat")}

    model = Model()
    if args.start:
        model.load_state_dict(load_file(args.start / "model.safetensors"))
    average = Model()
    average.load_state_dict(model.state_dict())
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=args.rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=args.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    step, tokens, used = 0, 0, 0.0
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    last = CHECKPOINTS / "last.pt"

    def save():
        part = last.with_suffix(".part")
        torch.save(dict(
            model=model.state_dict(), average=average.state_dict(), step=step, tokens=tokens, used=used,
            optimizers=[o.state_dict() for o in optimizers]), part)
        os.replace(part, last)

    if last.exists():
        state = torch.load(last, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        for o, s in zip(optimizers, state["optimizers"]):
            o.load_state_dict(s)
        step, tokens, used = state["step"], state["tokens"], state["used"]
        print(f"continue at step {step}, {used / 60:.1f} minutes used", flush=True)

    compiled = torch.compile(model)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    total, recent, saved = args.minutes * 60, [], time.monotonic()
    while used < total:
        began = time.monotonic()
        rng = np.random.default_rng((args.seed, step))
        talks = rng.binomial(ROWS, CHAT_SHARE)
        batch = torch.from_numpy(np.concatenate([
            windows(chat, rng, talks), windows(prose, rng, ROWS - talks)]))
        progress = used / total
        for o in optimizers:
            for g in o.param_groups:
                g["lr"] = args.rate * rate(progress)
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in optimizers:
            o.step()
            o.zero_grad()
        step += 1
        tokens += ROWS * LENGTH
        keep = min(0.99, 1 - 1 / (step / 4 + 1))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - keep)
        recent.append(loss.item())
        if not math.isfinite(recent[-1]):
            raise SystemExit(f"loss is {recent[-1]} at step {step}")
        spent = time.monotonic() - began
        if len(recent) > 1:  # the first step of a run compiles
            used += spent
        if step % 50 == 0:
            print(f"step {step} loss {np.mean(recent[-50:]):.3f} used {used / 60:.1f} min "
                  f"{ROWS * LENGTH / spent:.0f} tok/s", flush=True)
        if time.monotonic() - saved > 150:
            save()
            saved = time.monotonic()
    save()
    result = dict(
        steps=step, tokens=tokens, minutes=round(used / 60, 1), threads=args.threads,
        train_loss=round(float(np.mean(recent[-100:])), 4),
        **{k: round(v, 4) for k, v in evaluate(average, held).items()})
    (CHECKPOINTS / "result.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
