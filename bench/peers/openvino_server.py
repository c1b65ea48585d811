#!/usr/bin/env python3
"""An OpenAI-compatible server over OpenVINO GenAI: its packages bring an engine, but no server.

    openvino_server.py IR_FOLDER --name MODEL --port 8004 --slots 16 --threads 2 [--context 2048]

Two processes: this one speaks HTTP (front.py) and tokenizes; the engine's (openvino_engine.py) runs the steps of
ContinuousBatchingPipeline without a pause in between and sends the tokens of each step as one message. `start` of
openvino.sh runs it.
"""

import asyncio
import multiprocessing
import os

import openvino_genai
import tokenizers
from tokenizers.decoders import DecodeStream

import front
import openvino_engine


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
        self.tokenizer = tokenizers.Tokenizer.from_file(str(settings.model / "tokenizer.json"))

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

    def in_flight(self):
        return len(self.queues)

    async def pieces(self, request):
        decoder = DecodeStream(skip_special_tokens=True)
        async for id, reason in self.answer(request):
            yield ("" if id is None else decoder.step(self.tokenizer, id) or ""), reason

    async def answer(self, request):
        """Yields (token id, None) for each token, at last (None, why it ended)."""
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


def main():
    parser = front.arguments(__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cache-gib", type=int, default=2)
    parser.add_argument("--max-num-batched-tokens", type=int, default=512)
    parser.add_argument("--prefix-caching", action="store_true")
    args = parser.parse_args()
    engine = Engine(openvino_engine.Settings(
        args.model, args.slots, args.threads, args.cache_gib, args.max_num_batched_tokens,
        args.prefix_caching))
    templates = openvino_genai.Tokenizer(str(args.model))
    front.run(args, front.Server(
        args, engine, lambda messages: templates.apply_chat_template(messages, add_generation_prompt=True)))


if __name__ == "__main__":
    main()
