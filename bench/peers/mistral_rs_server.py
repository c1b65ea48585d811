#!/usr/bin/env python3
"""An OpenAI-compatible server over mistral.rs: its wheel brings an engine, but no server.

    mistral_rs_server.py MODEL_FOLDER --name MODEL --port 8005 --slots 16 [--dtype F32]

The engine streams only chats, and only from text, so a prompt of ids becomes a text of as many tokens: one word of the
vocabulary for each id, less the tokens that the template adds. That is right for measuring and for nothing else.
A thread for each request waits for its tokens; the engine's own threads compute. `start` of mistral_rs.sh runs it.
"""

import asyncio
import concurrent.futures

import mistralrs
import tokenizers

import front

# How many words stand in for ids: as many as the loads of bench/cpu.sh draw from.
WORDS = 256


def words_of(tokenizer):
    """Words of one token each, whatever is beside them."""
    words = sorted(tokenizer.decode([id]) for piece, id in tokenizer.get_vocab().items() if piece[1:].isalpha())
    words = [word for word in words if word.startswith(" ") and word.isascii()][:WORDS]
    text = "".join(words)
    assert len(words) == WORDS and len(tokenizer.encode(text, add_special_tokens=False)) == WORDS
    return words


class Engine:
    """mistral.rs's runner, with its answers brought to the event loop."""

    def __init__(self, args):
        self.runner = mistralrs.Runner(
            mistralrs.Which.Plain(model_id=str(args.model), dtype=getattr(mistralrs.ModelDType, args.dtype)),
            max_seqs=args.slots, prefix_cache_n=0)
        self.words = words_of(tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json")))
        self.threads = concurrent.futures.ThreadPoolExecutor(front.MAX_REQUESTS)
        self.flying, self.added = 0, 0
        chunks = list(self.runner.send_chat_completion_request(self.chat(front.Request([0], 1))))
        self.added = chunks[-1].usage.prompt_tokens - 1

    def listen(self):
        self.loop = asyncio.get_running_loop()

    def in_flight(self):
        return self.flying

    def chat(self, request):
        ids = request.ids[:max(1, len(request.ids) - self.added)]
        return mistralrs.ChatCompletionRequest(
            messages="".join(self.words[id % WORDS] for id in ids), model="default", stream=True,
            max_tokens=request.max_tokens, temperature=request.temperature, top_p=request.top_p,
            top_k=request.top_k or None, ignore_eos=request.ignore_eos)

    async def pieces(self, request):
        # At most max_tokens + 1 entries.
        queue = asyncio.Queue()
        gone = False

        def wait():
            try:
                for chunk in self.runner.send_chat_completion_request(self.chat(request)):
                    choice = chunk.choices[0]
                    self.loop.call_soon_threadsafe(queue.put_nowait, (choice.delta.content or "", choice.finish_reason))
                    if gone:
                        return
            except Exception as error:  # an answer ends, whatever ended it
                print(error, flush=True)
                self.loop.call_soon_threadsafe(queue.put_nowait, ("", "error"))

        self.flying += 1
        self.threads.submit(wait)
        try:
            reason = None
            while reason is None:
                text, reason = await queue.get()
                # The last token comes with the reason.
                if reason != "error":
                    yield text, None
            yield "", reason
        finally:
            gone = True
            self.flying -= 1


def main():
    parser = front.arguments(__doc__)
    parser.add_argument("--dtype", choices=("F32", "BF16"), default="F32")
    args = parser.parse_args()
    front.run(args, front.Server(args, Engine(args)))


if __name__ == "__main__":
    main()
