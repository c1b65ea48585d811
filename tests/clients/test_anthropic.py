"""Anthropic's client: against a device that says a given text, and against the bundled model."""

import anthropic
import pytest
from conftest import serve
from test_calls import TEMPLATE
from test_tools import END, TEXT, TOOL, saying

WEATHER = {"name": "get_weather", "input_schema": TOOL["function"]["parameters"]}
LIGHT = {
    "name": "light",
    "input_schema": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    },
}
USER = {"role": "user", "content": "How is the weather?"}
REQUEST = dict(model="tiny", max_tokens=600, messages=[USER], tools=[WEATHER], extra_body=END)
LIT = dict(model="saccade-tiny", max_tokens=200, messages=[USER], tools=[LIGHT], extra_body={"seed": 1})


@pytest.fixture(scope="module")
def said():
    with saying(TEXT) as url:
        yield anthropic.Anthropic(base_url=url, api_key="-", max_retries=0)


@pytest.fixture(scope="module")
def bundled():
    with serve("--kv-cache-memory-bytes", "64000000", "--chat-template", str(TEMPLATE), "--api-key", "secret") as url:
        yield anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)


def blocks(message):
    return [block.model_dump(include={"type", "text", "thinking", "name", "input"}) for block in message.content]


def test_a_stream_adds_up_to_the_whole_message(said):
    whole = said.messages.create(**REQUEST)
    call = {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris", "days": 2}}
    assert blocks(whole) == [
        {"type": "thinking", "thinking": "They ask for weather."},
        {"type": "text", "text": "I look."},
        call,
        call,
    ]
    assert whole.stop_reason == "tool_use"
    with said.messages.stream(**REQUEST) as stream:
        pieces = sum(event.type == "input_json" for event in stream)
        final = stream.get_final_message()
    assert pieces > 20, "arguments are streamed"
    assert blocks(final) == blocks(whole) and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_results_go_back_into_the_conversation(said):
    message = said.messages.create(**REQUEST)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "22 degrees"}]}
        for block in message.content
        if block.type == "tool_use"
    ]
    turns = [USER, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    usage = said.messages.create(**{**REQUEST, "messages": turns}).usage
    seen = lambda usage: usage.input_tokens + usage.cache_read_input_tokens  # noqa: E731
    assert seen(usage) > seen(message.usage) + len("I look." + 2 * "22 degrees")


def test_thinking_is_left_out_where_it_is_disabled(said):
    message = said.messages.create(thinking={"type": "disabled"}, **REQUEST)
    assert [block["type"] for block in blocks(message)] == ["text", "tool_use", "tool_use"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "light"}])
def test_the_model_calls_where_it_must(bundled, choice):
    # A small model may indent without end: such an answer is cut off, and its call is none.
    whole = 0
    for seed in range(8):
        request = {**LIT, "extra_body": {"seed": seed}}
        message = bundled.messages.create(tool_choice={**choice, "disable_parallel_tool_use": True}, **request)
        assert message.stop_reason in ("tool_use", "max_tokens")
        if message.stop_reason == "tool_use":
            (call,) = message.content
            assert call.name == "light"
            assert list(call.input) == ["on"] and isinstance(call.input["on"], bool)
            whole += 1
    assert whole > 0


def test_tokens_are_counted_as_they_will_be(bundled):
    counted = bundled.messages.count_tokens(
        model="saccade-tiny", messages=[USER], tools=[LIGHT], system="Be brief."
    ).input_tokens
    usage = bundled.messages.create(system="Be brief.", **LIT).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_are_theirs(bundled):
    with pytest.raises(anthropic.BadRequestError) as caught:
        bundled.messages.create(**{**LIT, "extra_body": {"top_p": 2}})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        bundled.messages.create(**{**LIT, "model": "other"})
    with pytest.raises(anthropic.AuthenticationError):
        bundled.with_options(api_key="other").messages.create(**LIT)
