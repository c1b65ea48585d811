"""OpenVINO GenAI's continuous batching as its own package drives it: one loop of add_request, step and read.

`ContinuousBatchingPipeline.step` holds Python's interpreter lock for the whole step. So the loop has a process of its
own (`serve`), and the HTTP front never waits for a step, nor does a step wait for the front.
"""

import dataclasses
import pathlib

import numpy
import openvino
import openvino_genai

FINISH = {
    openvino_genai.GenerationFinishReason.STOP: "stop",
    openvino_genai.GenerationFinishReason.LENGTH: "length",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a pipeline is built; everything not named here is OpenVINO's default."""

    model: pathlib.Path
    slots: int
    threads: int
    cache_gib: int
    max_num_batched_tokens: int
    prefix_caching: bool = False


def pipeline_of(settings):
    """A pipeline on the CPU. Without its prefix cache, a prompt that comes again is computed again."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = settings.cache_gib
    scheduler.max_num_seqs = settings.slots
    scheduler.max_num_batched_tokens = settings.max_num_batched_tokens
    scheduler.enable_prefix_caching = settings.prefix_caching
    properties = {"INFERENCE_NUM_THREADS": settings.threads}
    return openvino_genai.ContinuousBatchingPipeline(str(settings.model), scheduler, "CPU", properties)


def config_of(request, defaults):
    """The generation config of a request; end-of-text ids are the model's."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = request.max_tokens
    config.min_new_tokens = request.min_tokens
    config.ignore_eos = request.ignore_eos
    if defaults.eos_token_id >= 0:
        config.set_eos_token_id(defaults.eos_token_id)
    config.do_sample = request.temperature > 0
    if config.do_sample:
        config.temperature, config.top_p, config.rng_seed = request.temperature, request.top_p, request.seed
        if request.top_k > 0:
            config.top_k = request.top_k
    return config


class Batch:
    """The requests in flight of one pipeline."""

    def __init__(self, settings):
        self.pipeline = pipeline_of(settings)
        self.defaults = self.pipeline.get_config()
        self.handles = {}

    def add(self, number, request):
        ids = openvino.Tensor(numpy.array([request.ids], dtype=numpy.int64))
        self.handles[number] = self.pipeline.add_request(number, ids, config_of(request, self.defaults))

    def cancel(self, number):
        handle = self.handles.pop(number, None)
        if handle is not None:
            handle.cancel()

    def is_busy(self):
        return self.pipeline.has_non_finished_requests()

    def step(self):
        """One step. A list of (number, new token ids, why it ended or None)."""
        self.pipeline.step()
        events = []
        for number, handle in list(self.handles.items()):
            ids, reason = [], None
            while handle.can_read():
                for output in handle.read().values():
                    ids += output.generated_ids
                    reason = FINISH.get(output.finish_reason)
            status = handle.get_status()
            if status != openvino_genai.GenerationStatus.RUNNING:
                # IGNORED: its KV cache does not fit into the pool.
                finished = status == openvino_genai.GenerationStatus.FINISHED
                reason = reason or ("stop" if finished else "error")
                del self.handles[number]
            if ids or reason:
                events.append((number, ids, reason))
        return events


def serve(settings, link):
    """The loop of the engine's process. `link` brings ("add", number, Request) and ("cancel", number); it takes
    None once the model is loaded, then the events of each step. Ends when the other end is closed."""
    batch = Batch(settings)
    try:
        link.send(None)
        while True:
            # Waits only where there is nothing to compute.
            while link.poll(0 if batch.is_busy() else None):
                kind, number, *rest = link.recv()
                batch.add(number, *rest) if kind == "add" else batch.cancel(number)
            events = batch.step()
            if events:
                link.send(events)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
