"""An OpenAI-compatible front for engines whose Python packages bring no server, for measurements.

One event for each token. What is not carried over (n, logprobs, stop, tools) is refused with 400. The engine is an
object with `pieces(request)`, an asynchronous generator of (text, None) for each token, then ("", why it ended);
`in_flight()`; and `listen()`, called once the event loop runs. openvino_server.py and mistral_rs_server.py have one.
"""

import argparse
import dataclasses
import json
import pathlib
import time
import uuid

import tokenizers
from aiohttp import web

# Requests that are held at once; beyond them the answer is 429.
MAX_REQUESTS = 4096
REFUSED = ("logprobs", "stop", "tools", "logit_bias", "best_of", "suffix")


@dataclasses.dataclass(frozen=True)
class Request:
    """One prompt of token ids, and how its answer is drawn. temperature 0: greedy."""

    ids: list
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


def refusal(status, message):
    kind = {404: web.HTTPNotFound, 429: web.HTTPTooManyRequests}.get(status, web.HTTPBadRequest)
    body = {"error": {"message": message, "type": "invalid_request_error", "code": status}}
    return kind(text=json.dumps(body), content_type="application/json")


class Server:
    """The routes, for one model."""

    def __init__(self, args, engine, template=None):
        """`template` makes the text of a chat's messages; without it, chats are not served."""
        self.engine, self.name, self.context, self.template = engine, args.name, args.context, template
        self.tokenizer = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
        self.vocab = self.tokenizer.get_vocab_size()
        if (config := args.model / "config.json").exists():
            self.vocab = json.loads(config.read_text())["vocab_size"]

    def app(self):
        app = web.Application(client_max_size=16 << 20)
        app.add_routes([
            web.get("/health", self.health), web.get("/metrics", self.metrics), web.get("/v1/models", self.models),
            web.post("/v1/completions", self.completions),
        ])
        if self.template:
            app.add_routes([web.post("/v1/chat/completions", self.chat)])

        async def on_startup(_):
            self.engine.listen()

        app.on_startup.append(on_startup)
        return app

    async def health(self, _):
        return web.Response()

    async def metrics(self, _):
        return web.Response(text=f"front:requests_in_flight {self.engine.in_flight()}\n")

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
            text = self.template(body.get("messages"))
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
        return Request(ids, tokens, min(least, tokens), eos, top_k=top_k, seed=seed, **drawn)

    async def reply(self, http, body, ids, default_tokens, kind, prefix, shape):
        request = self.request(body, ids, default_tokens)
        head = {"id": prefix + uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": self.name}
        if self.engine.in_flight() >= MAX_REQUESTS:
            raise refusal(429, f"{MAX_REQUESTS} requests are in flight")
        answer = self.engine.pieces(request)
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


def arguments(description):
    """The parser of flags that every front has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context", type=int, default=2048)
    return parser


def run(args, server):
    web.run_app(server.app(), host=args.host, port=args.port, access_log=None, print=None)
