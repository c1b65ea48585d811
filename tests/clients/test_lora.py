"""LoRA adapters as the official Python client sees them. The adapter is made here: random factors of rank 4 for two
projections of the bundled model, in the files that PEFT writes."""

import json
import random
import struct
import time

import msgpack
import openai
import pytest
import requests
import zmq

from conftest import free_port, serve

MODEL = "saccade-tiny"
RANK = 4
LAYERS = 6
HIDDEN = 256
OUTPUTS = {"q_proj": 256, "v_proj": 128}
EVENTS_WITHIN_S = 30
CHAT = [{"role": "user", "content": "Hello! Who are you?"}]


def factors(seed):
    """Tensors by name: shape and values."""
    rng = random.Random(seed)

    def tensor(*shape):
        return shape, [rng.uniform(-0.5, 0.5) for _ in range(shape[0] * shape[1])]

    for layer in range(LAYERS):
        for projection, outputs in OUTPUTS.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            yield f"{name}.lora_A.weight", tensor(RANK, HIDDEN)
            yield f"{name}.lora_B.weight", tensor(outputs, RANK)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors:
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_adapter(folder, seed):
    folder.mkdir()
    write_safetensors(folder / "adapter_model.safetensors", factors(seed))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": MODEL,
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "target_modules": list(OUTPUTS),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return {name: write_adapter(folder / name, seed) for seed, name in enumerate(("sql", "chat"))}


@pytest.fixture(scope="module")
def lora_server(adapters):
    modules = [f"{name}={path}" for name, path in adapters.items()]
    flags = ["--enable-lora", "--lora-modules", *modules, "--kv-cache-memory-bytes", "64000000"]
    with serve(*flags) as url:
        yield url


@pytest.fixture(scope="module")
def client(lora_server):
    return openai.OpenAI(base_url=f"{lora_server}/v1", api_key="-", max_retries=0)


def test_adapters_are_listed_below_their_model(client, adapters):
    models = {model.id: model for model in client.models.list()}
    assert list(models) == [MODEL, *adapters]
    assert models[MODEL].parent is None
    for name, path in adapters.items():
        assert (models[name].parent, models[name].root) == (MODEL, path)
        assert client.models.retrieve(name) == models[name]


def test_an_adapter_is_a_model_of_its_own(client, adapters):
    def text(model, **kwargs):
        answer = client.chat.completions.create(
            model=model, messages=CHAT, temperature=0, max_tokens=24, **kwargs
        )
        assert answer.model == model
        return answer.choices[0].message.content

    texts = [text(model) for model in (MODEL, *adapters)]
    assert len(set(texts)) == 3, texts
    assert [text(model) for model in (MODEL, *adapters)] == texts, "behind cached prefixes"
    stream = client.chat.completions.create(
        model="sql", messages=CHAT, temperature=0, max_tokens=24, stream=True
    )
    chunks = list(stream)
    assert all(chunk.model == "sql" for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == texts[1]


def test_other_endpoints_take_an_adapter(client):
    kwargs = dict(input="In the beginning", temperature=0, max_output_tokens=16)
    answers = [client.responses.create(model=model, **kwargs) for model in (MODEL, "sql")]
    assert [answer.model for answer in answers] == [MODEL, "sql"]
    assert answers[0].output_text != answers[1].output_text
    vectors = [client.embeddings.create(model=model, input="x").data[0] for model in (MODEL, "sql", "sql")]
    assert vectors[0].embedding != vectors[1].embedding == vectors[2].embedding


def test_an_unknown_name_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="SQL", prompt="x")


def test_nothing_is_loaded_while_the_server_runs(lora_server):
    body = {"lora_name": "new", "lora_path": "/new"}
    answer = requests.post(f"{lora_server}/v1/load_lora_adapter", json=body, timeout=5)
    assert answer.status_code == 501 and "--lora-modules" in answer.json()["error"]["message"]


def stored_blocks(subscriber):
    """What is published from now on, block by block: its tokens, whose it is, and what else its hash depends on."""
    while True:
        _, _, payload = subscriber.recv_multipart()
        for event in msgpack.unpackb(payload)[1]:
            if event["type"] != "BlockStored":
                continue
            size, tokens = event["block_size"], event["token_ids"]
            for i, keys in enumerate(event["extra_keys"]):
                yield tokens[size * i : size * (i + 1)], event["lora_id"], event["lora_name"], keys


def test_kv_events_say_whose_blocks_they_are(adapters):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    events = json.dumps({"enable_kv_cache_events": True, "endpoint": endpoint})
    modules = [f"{name}={path}" for name, path in adapters.items()]
    flags = ["--lora-modules", *modules, "--kv-events-config", events, "--block-size", "16"]
    subscriber = zmq.Context.instance().socket(zmq.SUB)
    subscriber.rcvtimeo = 1000 * EVENTS_WITHIN_S
    subscriber.linger = 0
    subscriber.connect(endpoint)
    subscriber.subscribe(b"")
    with serve(*flags, "--kv-cache-memory-bytes", "64000000") as url:
        subscriber.recv_multipart()  # the publisher has begun, and this subscriber is one of its own
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        prompt = list(range(100, 148))  # three blocks
        for model in (MODEL, *adapters):
            client.completions.create(model=model, prompt=prompt, max_tokens=2)
        blocks, owners = stored_blocks(subscriber), {}
        began = time.monotonic()
        while sum(map(len, owners.values())) < 3 * 3:
            assert time.monotonic() - began < EVENTS_WITHIN_S, owners
            tokens, number, name, keys = next(blocks)
            assert tokens in (prompt[:16], prompt[16:32], prompt[32:]), "each prompt has the same blocks"
            assert keys == (None if name is None else [name])
            owners.setdefault((number, name), []).append(tokens)
    subscriber.close()
    assert set(owners) == {(None, None), (1, "sql"), (2, "chat")}
    assert all(blocks == [prompt[:16], prompt[16:32], prompt[32:]] for blocks in owners.values())
