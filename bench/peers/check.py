#!/usr/bin/env python3
"""What a server's API can do that load tools need. Prints one line for each fact; exit code 1 if one is false.

    check.py http://127.0.0.1:8000 [--tokens 8] [--timeout 300] [--any]

Any OpenAI-compatible server; only the standard library is needed. --any: exit code 0 whatever is missing.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request

TEXT = "Once upon a time there was a"
IDS = list(range(300, 316))


class Server:
    """A server's address, the model it names, and a time limit."""

    def __init__(self, base, timeout):
        self.base, self.timeout = base.rstrip("/"), timeout
        self.model = self.get_json("/v1/models")["data"][0]["id"]

    def open(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=self.timeout)

    def get_json(self, path):
        with self.open(path) as reply:
            return json.load(reply)

    def status(self, path, body=None):
        try:
            with self.open(path, body) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def events(self, path, body):
        """Objects of a stream, and whether [DONE] ended it."""
        objects, done = [], False
        with self.open(path, body | {"model": self.model, "stream": True}) as reply:
            for line in reply:
                data = line.decode().strip()
                if data == "data: [DONE]":
                    done = True
                elif data.startswith("data: "):
                    objects.append(json.loads(data.removeprefix("data: ")))
        return objects, done


def text_of(event):
    """The text of an event of a completion or a chat, or None."""
    for choice in event.get("choices", []):
        return choice.get("text") or choice.get("delta", {}).get("content")
    return None


def stream_facts(server, name, path, prompt, tokens):
    """Facts of one streamed answer of exactly `tokens` tokens."""
    exact = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream_options": {"include_usage": True}}
    events, done = server.events(path, exact | prompt)
    usage = next((event["usage"] for event in reversed(events) if event.get("usage")), {})
    shown = [event for event in events if text_of(event)]
    alone = any(event.get("usage") and not event.get("choices") for event in events)
    yield f"{name}: usage at the end of the stream", bool(usage), usage
    yield f"{name}: its event has no choices", alone, ""
    yield f"{name}: exactly max_tokens with ignore_eos", usage.get("completion_tokens") == tokens, ""
    yield f"{name}: one event with text a token", len(shown) == tokens, f"{len(shown)} of {tokens}"
    yield f"{name}: [DONE]", done, ""


def facts(server, tokens):
    """Name, whether it is so, and what was seen, of each fact."""
    yield "GET /health", server.status("/health") == 200, ""
    yield "GET /metrics", server.status("/metrics") == 200, ""
    yield from stream_facts(server, "completion of text", "/v1/completions", {"prompt": TEXT}, tokens)
    yield from stream_facts(server, "completion of ids", "/v1/completions", {"prompt": IDS}, tokens)
    chat = {"messages": [{"role": "user", "content": TEXT}]}
    yield from stream_facts(server, "chat", "/v1/chat/completions", chat, tokens)
    body = {"model": server.model, "prompt": IDS, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    with server.open("/v1/completions", body) as reply:
        whole = json.load(reply)
    yield "prompt of ids taken as it is", whole["usage"]["prompt_tokens"] == len(IDS), whole["usage"]["prompt_tokens"]
    with server.open("/v1/completions", body) as reply:
        again = json.load(reply)
    same = again["choices"][0]["text"] == whole["choices"][0]["text"]
    yield "greedy answer repeats", same, whole["choices"][0]["text"][:60]
    other = server.status("/v1/completions", body | {"model": "no such model"})
    yield "404 for another model", other == 404, other
    long = server.status("/v1/completions", body | {"prompt": [300] * 100_000})
    yield "400 for a prompt that is too long", long == 400, long


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base_url")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--any", action="store_true")
    args = parser.parse_args()
    start, missing = time.monotonic(), 0
    server = Server(args.base_url, args.timeout)
    print(f"{args.base_url}: model {server.model}")
    for name, holds, seen in facts(server, args.tokens):
        missing += not holds
        print(f"  {'yes' if holds else 'NO '}  {name}{f'  ({seen})' if seen != '' else ''}")
    print(f"{missing} missing, {time.monotonic() - start:.1f} s")
    sys.exit(0 if args.any or not missing else 1)


if __name__ == "__main__":
    main()
