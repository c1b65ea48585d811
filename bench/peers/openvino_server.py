#!/usr/bin/env python3
"""An OpenAI-compatible front for OpenVINO GenAI, for measurements: its packages bring an engine, but no server.

    openvino_server.py IR_FOLDER --name MODEL --port 8004 --slots 16 --threads 2 [--context 2048]

Two processes: this one speaks HTTP and tokenizes; the engine's (openvino_engine.py) runs the steps of
ContinuousBatchingPipeline without a pause in between and sends the tokens of each step as one message. One event for
each token. What is not carried over (n, logprobs, stop, tools) is refused with 400. `start` of openvino.sh runs it.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import pathlib
import time
import uuid

import openvino_genai
import tokenizers
from aiohttp import web
from tokenizers.decoders import DecodeStream

import openvino_engine

# Requests that are held at once; beyond them the answer is 429.
MAX_REQUESTS = 4096
REFUSED = ("logprobs", "stop", "tools", "logit_bias", "best_of", "suffix")


def refusal(status, message):
    kind = {404: web.HTTPNotFound, 429: web.HTTPTooManyRequests}.get(status, web.HTTPBadRequest)
    body = {"error": {"message": message, "type": "invalid_request_error", "code": status}}
    return kind(text=json.dumps(body), content_type="application/json")


class Engine:
    """The other end of openvino_engine.serve."""

    def __init__(self, settings):
        context = multiprocessing.get_context("spawn")
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=openvino_engine.serve, args=(settings, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.link.recv()
        self.queues, self.next = {}, 0

    def listen(self):
        asyncio.get_running_loop().add_reader(self.link.fileno(), self.take)

    def take(self):
        try:
            events = self.link.recv()
        except (EOFError, OSError):
            print("the engine's process has ended", flush=True)
            os._exit(1)
        for number, ids, reason in events:
            if number in self.queues:
                self.queues[number].put_nowait((ids, reason))

    async def answer(self, request):
        """Yields (token id, None) for each token, at last (None, why it ended)."""
        if len(self.queues) >= MAX_REQUESTS:
            raise refusal(429, f"{MAX_REQUESTS} requests are in flight")
        number, self.next = self.next, self.next + 1
        # At most max_tokens entries: one for each step that had a token of this request.
        queue = self.queues[number] = asyncio.Queue()
        reason = None
        try:
            self.link.send(("add", number, request))
            while reason is None:
                ids, reason = await queue.get()
                for id in ids:
                    yield id, None
            yield None, reason
        finally:
            del self.queues[number]
            if reason is None:
                self.link.send(("cancel", number))


class Server:
    """The routes, for one model."""

    def __init__(self, args, engine):
        self.engine, self.name, self.context = engine, args.name, args.context
        self.tokenizer = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
        self.templates = openvino_genai.Tokenizer(str(args.model))
        self.vocab = self.tokenizer.get_vocab_size()
        if (config := args.model / "config.json").exists():
            self.vocab = json.loads(config.read_text())["vocab_size"]

    def app(self):
        app = web.Application(client_max_size=16 << 20)
        app.add_routes([
            web.get("/health", self.health), web.get("/metrics", self.metrics), web.get("/v1/models", self.models),
            web.post("/v1/completions", self.completions), web.post("/v1/chat/completions", self.chat),
        ])

        async def on_startup(_):
            self.engine.listen()

        app.on_startup.append(on_startup)
        return app

    async def health(self, _):
        return web.Response()

    async def metrics(self, _):
        return web.Response(text=f"openvino:requests_in_flight {len(self.engine.queues)}\n")

    async def models(self, _):
        return web.json_response({"object": "list", "data": [{"id": self.name, "object": "model"}]})

    async def completions(self, http):
        body = await self.read(http)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt).ids
        elif isinstance(prompt, list) and prompt and all(type(id) is int and 0 <= id < self.vocab for id in prompt):
            ids = prompt
        else:
            raise refusal(400, f"prompt: must be a text or ids of 0 .. {self.vocab - 1}")
        return await self.reply(http, body, ids, 16, "text_completion", "cmpl-", lambda text: {"text": text})

    async def chat(self, http):
        body = await self.read(http)
        try:
            text = self.templates.apply_chat_template(body.get("messages"), add_generation_prompt=True)
        except (TypeError, RuntimeError) as error:
            raise refusal(400, f"messages: {error}") from error
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        kind, part = ("chat.completion.chunk", "delta") if body.get("stream") else ("chat.completion", "message")

        def shape(text):
            return {part: {"role": "assistant", "content": text}}

        return await self.reply(http, body, ids, self.context, kind, "chatcmpl-", shape)

    async def read(self, http):
        try:
            body = await http.json()
        except ValueError as error:
            raise refusal(400, f"not JSON: {error}") from error
        if not isinstance(body, dict):
            raise refusal(400, "the body must be an object")
        if body.get("model", self.name) != self.name:
            raise refusal(404, f"the model {body['model']!r} does not exist, only {self.name!r}")
        for field in REFUSED:
            if body.get(field):
                raise refusal(400, f"{field}: not supported")
        if body.get("n", 1) != 1:
            raise refusal(400, "n: only 1 is supported")
        return body

    def request(self, body, ids, default_tokens):
        room = self.context - len(ids)
        if room < 1:
            raise refusal(400, f"prompt: {len(ids)} tokens, at most {self.context - 1}")
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or min(default_tokens, room)
        try:
            tokens, top_k = int(wanted), int(body.get("top_k") or 0)
            drawn = {name: float(body.get(name, 1.0)) for name in ("temperature", "top_p")}
            least, seed = int(body.get("min_tokens") or 0), int(body.get("seed") or 0)
        except (TypeError, ValueError) as error:
            raise refusal(400, f"a number is expected: {error}") from error
        if not 1 <= tokens <= room:
            raise refusal(400, f"max_tokens: {tokens} is outside 1 .. {room}")
        eos = bool(body.get("ignore_eos"))
        return openvino_engine.Request(ids, tokens, min(least, tokens), eos, top_k=top_k, seed=seed, **drawn)

    async def reply(self, http, body, ids, default_tokens, kind, prefix, shape):
        request = self.request(body, ids, default_tokens)
        head = {"id": prefix + uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": self.name}
        answer = self.pieces(request)
        if body.get("stream"):
            options = body.get("stream_options") or {}
            return await self.stream(http, head, answer, shape, bool(options.get("include_usage")), len(ids))
        text, count, reason = [], 0, None
        async for piece, reason in answer:
            count += reason is None
            text.append(piece)
        if reason == "error":
            raise web.HTTPInternalServerError(text="the KV cache is too small for this request")
        choice = {"index": 0, "finish_reason": reason} | shape("".join(text))
        return web.json_response(head | {"choices": [choice], "usage": usage(len(ids), count)})

    async def pieces(self, request):
        """Yields (text, None) for each token, then ("", why it ended)."""
        decoder = DecodeStream(skip_special_tokens=True)
        async for id, reason in self.engine.answer(request):
            yield ("" if id is None else decoder.step(self.tokenizer, id) or ""), reason

    async def stream(self, http, head, answer, shape, with_usage, prompt_tokens):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        count = 0
        async for text, reason in answer:
            count += reason is None
            choice = {"index": 0, "finish_reason": reason} | shape(text)
            await response.write(event(head | {"choices": [choice]}))
        if with_usage:
            await response.write(event(head | {"choices": [], "usage": usage(prompt_tokens, count)}))
        await response.write(b"data: [DONE]\n\n")
        return response


def usage(prompt, completion):
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def event(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cache-gib", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--max-num-batched-tokens", type=int, default=512)
    parser.add_argument("--prefix-caching", action="store_true")
    args = parser.parse_args()
    engine = Engine(openvino_engine.Settings(
        args.model, args.slots, args.threads, args.cache_gib, args.max_num_batched_tokens,
        args.prefix_caching))
    web.run_app(Server(args, engine).app(), host=args.host, port=args.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
