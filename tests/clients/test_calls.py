"""Answers that must call, from the bundled model: what the official client and Pydantic make of them."""

import json
import pathlib

import openai
import pydantic
import pytest
from conftest import serve


class Light(pydantic.BaseModel):
    on: bool
    level: int = pydantic.Field(ge=0, le=9)


class Off(pydantic.BaseModel):
    pass


TOOLS = [openai.pydantic_function_tool(model) for model in (Light, Off)]
# A small model that is warmer may indent without end.
REQUEST = dict(
    model="saccade-tiny", messages=[{"role": "user", "content": "Switch the light on."}], tools=TOOLS, temperature=0
)

# The bundled model's own template renders no tools.
TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / "crates/frontend/tests/templates/tagged.jinja"


@pytest.fixture(scope="module")
def client():
    with serve("--kv-cache-memory-bytes", "64000000", "--chat-template", str(TEMPLATE)) as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none")


def named(name):
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("choice", ["required", named("Light")])
def test_parsed_arguments(client, choice):
    answers = client.chat.completions.parse(tool_choice=choice, parallel_tool_calls=False, n=4, **REQUEST)
    for choice_made in answers.choices:
        (call,) = choice_made.message.tool_calls
        assert isinstance(call.function.parsed_arguments, (Light, Off))
        assert choice_made.message.content is None
        if choice != "required":
            assert call.function.name == "Light"


def test_streamed_is_whole(client):
    # One call: a small model lists them without end.
    request = dict(tool_choice="required", parallel_tool_calls=False, max_tokens=400, **REQUEST)
    whole = client.chat.completions.create(**request).choices[0]
    calls = {}
    with client.chat.completions.create(stream=True, **request) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                for piece in choice.delta.tool_calls or []:
                    call = calls.setdefault(piece.index, [piece.function.name, ""])
                    call[1] += piece.function.arguments or ""
    assert list(calls.values()) == [[c.function.name, c.function.arguments] for c in whole.message.tool_calls]
    assert whole.finish_reason == "tool_calls" and calls
    for _, arguments in calls.values():
        json.loads(arguments)


def test_a_format_is_of_what_is_said_beside_calls(client):
    request = dict(tool_choice="required", parallel_tool_calls=False, response_format=Light, **REQUEST)
    message = client.chat.completions.parse(**request).choices[0].message
    assert message.parsed is None and len(message.tool_calls) == 1


def test_a_grammar_of_the_whole_answer_beside_calls_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(tool_choice="required", extra_body={"guided_regex": "a+"}, **REQUEST)
    assert caught.value.body["param"] == "tool_choice"
