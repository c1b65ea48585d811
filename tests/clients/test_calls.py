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

# A template of larger models, which the bundled model has not been trained on: grammars hold it all the same.
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


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city now",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED = {"role": "user", "content": "What is the weather in Paris?"}


@pytest.fixture(scope="module")
def trained(server):
    """The bundled model with its own template."""
    return openai.OpenAI(base_url=f"{server}/v1", api_key="none")


def ask(client, *messages, **fields):
    request = dict(model="saccade-tiny", messages=list(messages), tools=[WEATHER], temperature=0, max_tokens=100)
    return client.chat.completions.create(**{**request, **fields}).choices[0]


@pytest.mark.parametrize("choice", ["auto", "required", named("get_weather")])
def test_the_bundled_model_calls_what_it_needs(trained, choice):
    answer = ask(trained, ASKED, tool_choice=choice, parallel_tool_calls=False)
    (call,) = answer.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert answer.finish_reason == "tool_calls"


def test_it_says_what_the_function_returned(trained):
    called = ask(trained, ASKED).message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "cloudy, 17 degrees"}
    answer = ask(trained, ASKED, called, result)
    assert answer.message.tool_calls is None and answer.finish_reason == "stop"
    assert "cloudy" in answer.message.content and "17" in answer.message.content


def test_it_calls_nothing_without_need(trained):
    answer = ask(trained, {"role": "user", "content": "Hello! Who are you?"})
    assert answer.message.tool_calls is None and "Saccade Tiny" in answer.message.content


class Person(pydantic.BaseModel):
    name: str
    age: int
    languages: list[str]


def test_it_fills_in_a_form(trained):
    said = {"role": "user", "content": "Anna Meyer is 34 and speaks French and Greek."}
    request = dict(model="saccade-tiny", messages=[said], temperature=0, response_format=Person)
    (choice,) = trained.chat.completions.parse(**request).choices
    assert choice.message.parsed == Person(name="Anna Meyer", age=34, languages=["French", "Greek"])
