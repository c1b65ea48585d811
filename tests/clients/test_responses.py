"""OpenAI's Responses API, as the official clients read it: from a device that says a given text, and from the bundled
model."""

import json
import os
import pathlib
import shutil
import subprocess

import openai
import pydantic
import pytest
import requests
from conftest import serve
from openai.types.responses import Response, ResponseStreamEvent
from test_calls import Light
from test_tools import ARGUMENTS, END, TEMPLATE, TEXT, TOOL, saying

WEATHER = {"type": "function", "strict": False, **TOOL["function"]}
QUESTION = "How is the weather?"
REQUEST = dict(model="tiny", input=QUESTION, tools=[WEATHER], extra_body=END)
# A small model that is warmer may indent without end.
LIT = dict(model="saccade-tiny", input="Switch the light on.", temperature=0, max_output_tokens=400)


@pytest.fixture(scope="module")
def url():
    with saying(TEXT) as url:
        yield url


@pytest.fixture(scope="module")
def said(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)


@pytest.fixture(scope="module")
def bundled():
    with serve("--kv-cache-memory-bytes", "64000000", "--chat-template", str(TEMPLATE), "--api-key", "secret") as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)


def contents(response):
    """What the items say, in order."""
    says = {
        "reasoning": lambda item: item.content[0].text,
        "message": lambda item: item.content[0].text,
        "function_call": lambda item: (item.name, item.arguments),
    }
    return [(item.type, says[item.type](item)) for item in response.output]


def test_a_stream_adds_up_to_the_whole_response(said):
    whole = said.responses.create(**REQUEST)
    call = ("function_call", ("get_weather", ARGUMENTS))
    assert contents(whole) == [("reasoning", "They ask for weather."), ("message", "I look."), call, call]
    assert whole.status == "completed" and whole.output_text == "I look."
    with said.responses.stream(**REQUEST) as stream:
        events = list(stream)
        final = stream.get_final_response()
    pieces = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(pieces) > 20, "arguments are streamed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert contents(final) == contents(whole)
    assert final.usage.output_tokens == whole.usage.output_tokens
    # Tokens are bytes here; the last byte of the closing marker ends the reasoning.
    thought = whole.usage.output_tokens_details.reasoning_tokens
    assert thought == len("\nThey ask for weather.\n</think")


def test_all_that_is_answered_has_the_types_of_the_client(url):
    """The client itself takes what it is given unchecked."""
    logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    body = {"model": "tiny", "input": QUESTION, "tools": [WEATHER], **END, **logprobs}
    whole = requests.post(f"{url}/v1/responses", json=body, timeout=60).json()
    Response.model_validate(whole, strict=True)
    events = pydantic.TypeAdapter(ResponseStreamEvent)
    with requests.post(f"{url}/v1/responses", json={**body, "stream": True}, stream=True, timeout=60) as stream:
        lines = [line.removeprefix(b"data: ") for line in stream.iter_lines() if line.startswith(b"data: ")]
    kinds = [type(events.validate_json(line)).__name__ for line in lines]
    assert kinds[0] == "ResponseCreatedEvent" and kinds[-1] == "ResponseCompletedEvent"
    assert len(set(kinds)) == 13, sorted(set(kinds))


def test_items_and_results_go_back_into_the_conversation(said):
    response = said.responses.create(**REQUEST)
    calls = [item for item in response.output if item.type == "function_call"]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"} for call in calls]
    for output in (response.output, [item.model_dump(exclude_none=True) for item in response.output]):
        turns = [{"role": "user", "content": QUESTION}, *output, *results]
        usage = said.responses.create(**{**REQUEST, "input": turns}).usage
        assert usage.input_tokens > response.usage.input_tokens + len("I look." + 2 * "22 degrees")


def test_what_is_cut_is_incomplete(said):
    response = said.responses.create(max_output_tokens=30, **REQUEST)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    with said.responses.create(stream=True, max_output_tokens=30, **REQUEST) as stream:
        *_, last = stream
    assert last.type == "response.incomplete" and contents(last.response) == contents(response)


def test_a_format_is_obeyed_and_parsed(bundled):
    response = bundled.responses.parse(text_format=Light, **LIT)
    assert response.status == "completed" and isinstance(response.output_parsed, Light)
    with bundled.responses.stream(text_format=Light, **LIT) as stream:
        assert stream.get_final_response().output_parsed == response.output_parsed
    schema = {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    }
    named = {"type": "json_schema", "name": "light", "schema": schema, "strict": True}
    answer = json.loads(bundled.responses.create(text={"format": named}, **LIT).output_text)
    assert list(answer) == ["on"] and isinstance(answer["on"], bool)
    # What a small model says by itself may be long: it is the beginning of an object at least.
    text = bundled.responses.create(text={"format": {"type": "json_object"}}, **LIT).output_text
    assert text.lstrip().startswith("{")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "Light"}])
def test_the_model_calls_where_it_must(bundled, choice):
    tools = [openai.pydantic_function_tool(Light)]
    response = bundled.responses.parse(tools=tools, tool_choice=choice, parallel_tool_calls=False, **LIT)
    (call,) = response.output
    assert call.name == "Light" and isinstance(call.parsed_arguments, Light)


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        (dict(top_p=2), "top_p", "invalid_value"),
        (dict(store=True), "store", "unsupported_parameter"),
        (dict(background=True), "background", "unsupported_parameter"),
        (dict(previous_response_id="resp_1"), "previous_response_id", "unsupported_parameter"),
        (dict(conversation="conv_1"), "conversation", "unsupported_parameter"),
        (dict(prompt={"id": "pmpt_1"}), "prompt", "unsupported_parameter"),
        (dict(truncation="auto"), "truncation", "unsupported_parameter"),
        (dict(tools=[{"type": "web_search"}]), "tools[0].type", "unsupported_parameter"),
        (dict(input=[{"type": "item_reference", "id": "msg_1"}]), "input[0].type", "unsupported_parameter"),
    ],
)
def test_errors_name_the_field(bundled, change, param, code):
    with pytest.raises(openai.BadRequestError) as caught:
        bundled.responses.create(**{**LIT, **change})
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.type == "invalid_request_error"


def test_errors_have_the_classes_of_the_client(bundled):
    with pytest.raises(openai.NotFoundError):
        bundled.responses.create(**{**LIT, "model": "other"})
    with pytest.raises(openai.NotFoundError):
        bundled.responses.retrieve("resp_1")
    with pytest.raises(openai.AuthenticationError):
        bundled.with_options(api_key="other").responses.create(**LIT)


def test_node_client(url, tmp_path):
    script = pathlib.Path(__file__).with_name("openai_node_responses.mjs")
    shutil.copy(script, tmp_path)
    os.symlink(os.environ["SACCADE_NODE_MODULES"], tmp_path / "node_modules")
    env = {**os.environ, "SACCADE_URL": url}
    subprocess.run(["node", "--test", script.name], cwd=tmp_path, env=env, check=True, timeout=120)
