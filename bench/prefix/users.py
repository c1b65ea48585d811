#!/usr/bin/env python3
"""Users whose prompts begin alike, against any OpenAI-compatible server: what they wait, and what is computed.

    users.py LOAD --url http://127.0.0.1:8000 --model NAME [--seed N]

LOAD is chats: 8 users, 6 turns each. A turn's prompt is the conversation so far and 128 tokens more; 64 tokens stand
for each earlier answer, since answers of random weights have no text. Or system: 16 users at once, a shared prompt of
1,000 tokens and 64 of their own. Or unlike: one user, 24 prompts of 512 tokens that share nothing. Prompts are token
ids; answers 32 tokens, greedy. A user sends a turn when the last one has been answered. Prints one JSON object: times
to the first token and per later token in ms, prompt tokens, and how many of them the server says that it computed (null
if it says nothing).
"""

import argparse
import http.client
import json
import random
import threading
import time
import urllib.parse

ANSWER = 32
TIMEOUT_S = 900


def draw(source, count):
    # Ids for which every tokenizer of bench/peers has a text.
    return [source.randrange(3, 250) for _ in range(count)]


def chats(seed):
    """The prompts of each user, in order."""
    users = []
    for user in range(8):
        source, prompt, turns = random.Random(f"{seed} chat {user}"), [], []
        for _ in range(6):
            prompt = prompt + draw(source, 128 if prompt else 256)
            turns.append(prompt)
            prompt = prompt + draw(source, 64)
        users.append(turns)
    return users


def system(seed):
    shared = draw(random.Random(f"{seed} system"), 1000)
    return [[shared + draw(random.Random(f"{seed} user {user}"), 64)] for user in range(16)]


def unlike(seed):
    source = random.Random(f"{seed} unlike")
    return [[draw(source, 512) for _ in range(24)]]


LOADS = {"chats": chats, "system": system, "unlike": unlike}


def computed_of(usage, timings, prompt_len):
    if timings and "prompt_n" in timings:  # llama.cpp
        return timings["prompt_n"]
    details = (usage or {}).get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    return None if cached is None else prompt_len - cached


def ask(url, model, prompt, **fields):
    """One streamed completion: (ms to the first token, prompt tokens computed or None, ms to the last token).

    `fields`: more of the body.
    """
    body = json.dumps({
        "model": model, "prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True}, **fields,
    })
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=TIMEOUT_S)
    connection.connect()
    began = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {response.read(500)}")
    first, last, usage, timings = None, None, None, None
    for line in response:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        if event.get("choices"):
            last = 1e3 * (time.perf_counter() - began)
            first = last if first is None else first
        usage, timings = event.get("usage") or usage, event.get("timings") or timings
    connection.close()
    if first is None:
        raise RuntimeError("an answer without a token")
    return first, computed_of(usage, timings, len(prompt)), last


def serve(url, model, users):
    answers, failures, start = [], [], threading.Barrier(len(users))

    def user(turns):
        try:
            start.wait()
            for prompt in turns:
                answers.append((len(prompt), *ask(url, model, prompt)))
        except Exception as problem:
            failures.append(problem)

    threads = [threading.Thread(target=user, args=(turns,)) for turns in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return answers


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description="Users whose prompts begin alike.")
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", default="0")
    args = parser.parse_args()
    began = time.monotonic()
    answers = serve(urllib.parse.urlsplit(args.url), args.model, LOADS[args.load](args.seed))
    computed = [answer[2] for answer in answers]
    times = [answer[1] for answer in answers]
    per_token = [(answer[3] - answer[1]) / (ANSWER - 1) for answer in answers]
    print(json.dumps({
        "load": args.load, "seed": args.seed, "requests": len(answers),
        "prompt_tokens": sum(answer[0] for answer in answers),
        "computed_tokens": None if None in computed else sum(computed),
        "ttft_ms": {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)},
        "tpot_ms": {"p50": percentile(per_token, 0.5), "p99": percentile(per_token, 0.99)},
        "seconds": time.monotonic() - began,
    }))


if __name__ == "__main__":
    main()
