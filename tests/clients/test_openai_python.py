"""What the official Python client sees."""

import openai
import pytest

MODEL = "saccade-tiny"
CHAT = [{"role": "user", "content": "Hello! Who are you?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server}/v1", api_key="-", max_retries=0)


def test_models(client):
    names = [m.id for m in client.models.list()]
    assert names == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_chat_is_readable_english(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=120
    )
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    words = choice.message.content.lower().split()
    assert len(words) >= 4
    common = {"the", "a", "i", "am", "and", "of", "to", "is", "in", "that", "model", "you"}
    assert sum(w.strip(".,!?") in common for w in words) >= len(words) / 6, choice.message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream_equals_whole_and_ends_with_usage(client):
    kwargs = dict(model=MODEL, messages=CHAT, temperature=0.7, seed=5, max_tokens=60)
    whole = client.chat.completions.create(**kwargs)
    chunks = list(
        client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **kwargs)
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert finishes[-1] == whole.choices[0].finish_reason
    assert not any(finishes[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert all(c.usage is None for c in chunks[:-1])


def test_n_gives_different_choices_and_same_again(client):
    kwargs = dict(model=MODEL, prompt="In the", n=3, seed=11, temperature=1.0, max_tokens=24)
    first = client.completions.create(**kwargs)
    texts = [c.text for c in sorted(first.choices, key=lambda c: c.index)]
    assert len(texts) == 3 and len(set(texts)) > 1
    again = client.completions.create(**kwargs)
    assert texts == [c.text for c in sorted(again.choices, key=lambda c: c.index)]


def test_seed_decides(client):
    kwargs = dict(model=MODEL, prompt="And the", temperature=1.0, max_tokens=24)
    texts = [client.completions.create(seed=s, **kwargs).choices[0].text for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_stop_string_across_tokens(client):
    kwargs = dict(model=MODEL, prompt="In the beginning", temperature=0, max_tokens=64)
    free = client.completions.create(**kwargs).choices[0].text
    middle = len(free) // 2
    stop = free[middle : middle + 7]
    for stream in (False, True):
        answer = client.completions.create(stop=[stop, "never-appears"], stream=stream, **kwargs)
        if stream:
            chunks = list(answer)
            text = "".join(c.choices[0].text for c in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            text, reason = answer.choices[0].text, answer.choices[0].finish_reason
        assert text == free[: free.index(stop)]
        assert reason == "stop"


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=8, logprobs=True, top_logprobs=5
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 5
        assert bytes(token.bytes).decode("utf-8", "replace") == token.token
        values = [t.logprob for t in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert token.logprob == values[0], "greedy takes the most likely token"


def test_completion_logprobs_and_echo(client):
    prompt = "In the beginning"
    answer = client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=4, temperature=0, logprobs=3, echo=True
    ).choices[0]
    assert answer.text.startswith(prompt)
    lp = answer.logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset)
    assert lp.token_logprobs[0] is None and all(x <= 0 for x in lp.token_logprobs[1:])
    assert "".join(lp.tokens) == answer.text
    for token, offset in zip(lp.tokens, lp.text_offset):
        assert answer.text[offset:].startswith(token)


def test_prompts_of_every_shape(client):
    ids = [10, 11, 12]
    for prompt, count in (("a", 1), (["a", "b"], 2), (ids, 1), ([ids, ids[:2]], 2)):
        answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=2)
        assert sorted(c.index for c in answer.choices) == list(range(count))


def test_limits_end_with_length(client):
    answer = client.completions.create(
        model=MODEL, prompt="a", max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 5


@pytest.mark.parametrize(
    ("kwargs", "error", "param"),
    [
        (dict(model="other", prompt="a"), openai.NotFoundError, "model"),
        (dict(prompt="a", temperature=-1), openai.BadRequestError, "temperature"),
        (dict(prompt="a", top_p=0), openai.BadRequestError, "top_p"),
        (dict(prompt="a", max_tokens=-1), openai.BadRequestError, "max_tokens"),
        (dict(prompt="a", n=10**6), openai.BadRequestError, "n"),
        (dict(prompt="a", logprobs=99), openai.BadRequestError, "logprobs"),
        (dict(prompt=[10**9]), openai.BadRequestError, "prompt"),
        (dict(prompt="a " * 100_000), openai.BadRequestError, None),
        (dict(prompt="a", stop=["x"] * 1000), openai.BadRequestError, "stop"),
        (dict(prompt="a", suffix="b"), openai.BadRequestError, "suffix"),
    ],
)
def test_errors_name_the_field(client, kwargs, error, param):
    with pytest.raises(error) as caught:
        client.completions.create(**{"model": MODEL, "max_tokens": 2, **kwargs})
    body = caught.value.body
    assert body["message"] and body["type"]
    if param:
        assert body["param"] == param


def test_api_key(keyed_server):
    for key, ok in (("secret", True), ("wrong", False)):
        client = openai.OpenAI(base_url=f"{keyed_server}/v1", api_key=key, max_retries=0)
        if ok:
            assert list(client.models.list())
        else:
            with pytest.raises(openai.AuthenticationError):
                client.models.list()


def test_embeddings_in_both_encodings(client):
    """The client asks for base64 by itself, and decodes it."""
    texts = ["Hello! Who are you?", "The sea is calm tonight.", "Hello! Who are you?"]
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    coded = client.embeddings.create(model=MODEL, input=texts)
    assert [item.index for item in plain.data] == [0, 1, 2]
    assert plain.object == "list" and plain.data[0].object == "embedding" and plain.model == MODEL
    for a, b in zip(plain.data, coded.data, strict=True):
        assert a.embedding == pytest.approx(b.embedding, abs=0, rel=1e-6)
        assert sum(value * value for value in a.embedding) == pytest.approx(1, abs=1e-5)
    assert coded.data[0].embedding == coded.data[2].embedding != coded.data[1].embedding
    assert plain.usage.total_tokens == plain.usage.prompt_tokens > 0
    alone = client.embeddings.create(model=MODEL, input=texts[1])
    assert alone.data[0].embedding == coded.data[1].embedding


def test_embeddings_of_token_ids_and_refusals(client):
    of_ids = client.embeddings.create(model=MODEL, input=[[5, 6, 7], [5, 6, 8]])
    assert len(of_ids.data) == 2 and of_ids.usage.prompt_tokens == 6
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model=MODEL, input="x", dimensions=8)
    assert refused.value.body["param"] == "dimensions"
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=MODEL, input=[])
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="no-such-model", input="x")
