"""LangChain's ChatOpenAI on both of OpenAI's APIs, against the bundled model."""

import langchain_core.messages as messages
import pydantic
import pytest
from conftest import serve
from langchain_openai import ChatOpenAI
from test_calls import TEMPLATE

ASKED = "Switch the light on."
BRIEF = [("system", "You are brief."), ("human", "Who are you?")]


class Light(pydantic.BaseModel):
    """Switches the light."""

    # Without this a function may get anything else as well, and a small model gives it without end.
    model_config = pydantic.ConfigDict(extra="forbid")
    on: bool
    level: int = pydantic.Field(ge=0, le=9, description="How bright.")


@pytest.fixture(scope="module")
def url():
    with serve("--kv-cache-memory-bytes", "64000000", "--chat-template", str(TEMPLATE), "--api-key", "secret") as url:
        yield url


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def make(url, request):
    def make(max_tokens):
        # A small model that is warmer may indent without end.
        return ChatOpenAI(
            model="saccade-tiny",
            base_url=f"{url}/v1",
            api_key="secret",
            temperature=0,
            max_tokens=max_tokens,
            max_retries=0,
            stream_usage=True,
            use_responses_api=request.param,
        )

    return make


def whole(pieces):
    return sum(pieces[1:], pieces[0])


def test_a_stream_adds_up_to_the_whole_answer(make):
    model = make(max_tokens=24)
    answer = model.invoke(BRIEF)
    assert answer.text and answer.usage_metadata["output_tokens"] == 24
    pieces = list(model.stream(BRIEF))
    assert len(pieces) > 10 and whole(pieces).text == answer.text
    # What was cached differs.
    for tokens in ("input_tokens", "output_tokens", "total_tokens"):
        assert whole(pieces).usage_metadata[tokens] == answer.usage_metadata[tokens]


def test_a_batch_answers_each_in_its_place(make):
    model = make(max_tokens=8)
    asked = ["Who are you?", ASKED, "Hello!"]
    answers = [answer.text for answer in model.batch(asked)]
    assert answers == [model.invoke(text).text for text in asked]
    assert len(set(answers)) > 1


@pytest.mark.parametrize("choice", ["any", "Light"])
@pytest.mark.parametrize("strict", [None, True])
def test_a_bound_tool_is_called_and_its_result_goes_back(make, choice, strict):
    model = make(max_tokens=400)
    bound = model.bind_tools([Light], tool_choice=choice, strict=strict, parallel_tool_calls=False)
    called = bound.invoke(ASKED)
    (call,) = called.tool_calls
    assert call["name"] == "Light" and call["id"] and Light.model_validate(call["args"], strict=True)
    pieces = list(bound.stream(ASKED))
    (streamed,) = whole(pieces).tool_calls
    assert streamed["args"] == call["args"] and len(pieces) > 4
    turns = [messages.HumanMessage(ASKED), called, messages.ToolMessage("done", tool_call_id=call["id"])]
    after = make(max_tokens=8).bind_tools([Light], tool_choice="none").invoke(turns)
    assert after.usage_metadata["input_tokens"] > called.usage_metadata["input_tokens"] + len("done")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_what_is_answered_has_the_type_it_must_have(make, method):
    model = make(max_tokens=400)
    typed = model.with_structured_output(Light, method=method)
    answer = typed.invoke(ASKED)
    assert isinstance(answer, Light)
    *_, last = typed.stream(ASKED)
    assert last == answer
    raw = model.with_structured_output(Light.model_json_schema(), method=method, include_raw=True).invoke(ASKED)
    assert raw["parsing_error"] is None and Light.model_validate(raw["parsed"], strict=True)
