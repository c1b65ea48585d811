"""OpenAI's Agents SDK on both of OpenAI's APIs, against the bundled model."""

import asyncio
from typing import Annotated

import agents
import openai
import pydantic
import pytest
import requests
from agents.items import MessageOutputItem, ToolCallItem, ToolCallOutputItem
from conftest import serve
from test_calls import TEMPLATE

agents.set_tracing_disabled(True)
APIS = [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel]


class Report(pydantic.BaseModel):
    is_on: bool
    level: int = pydantic.Field(ge=0, le=9)


@pytest.fixture(scope="module")
def url():
    with serve("--kv-cache-memory-bytes", "64000000", "--chat-template", str(TEMPLATE)) as url:
        yield url


@pytest.fixture(params=APIS, ids=["chat", "responses"])
def model(url, request):
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
    return request.param(model="saccade-tiny", openai_client=client)


@pytest.fixture
def asked():
    """What the tool was called with."""
    return []


@pytest.fixture
def agent(url, model, asked):
    @agents.function_tool
    def switch(on: bool, level: Annotated[int, pydantic.Field(ge=0, le=9)]) -> str:
        """Switches the light.

        Args:
            on: Whether it is on.
            level: How bright.
        """
        asked.append((on, level))
        return "done"

    # Once it need not call any more, the bundled model would go on and on: a list of calls begins with a bracket.
    bracket = requests.post(f"{url}/tokenize", json={"prompt": "["}, timeout=60).json()["tokens"][0]
    settings = agents.ModelSettings(
        # A small model that is warmer may indent without end.
        temperature=0,
        max_tokens=400,
        tool_choice="required",
        parallel_tool_calls=False,
        include_usage=True,
        extra_body={"logit_bias": {bracket: -100}},
    )
    return agents.Agent(
        name="Switch", instructions="You switch the light.", model=model, model_settings=settings, tools=[switch]
    )


ASKED = "Switch the light on."


def check(result, asked):
    """The tool was run, what it returned went back, and the model answered."""
    ((on, level),) = asked
    assert isinstance(on, bool) and level in range(10)
    items = [type(item) for item in result.new_items]
    assert items == [ToolCallItem, ToolCallOutputItem, MessageOutputItem]
    assert len(result.raw_responses) == 2
    first, second = (response.usage for response in result.raw_responses)
    assert second.input_tokens > first.input_tokens and second.output_tokens > 0


def test_a_tool_is_run_and_its_result_goes_back(agent, asked):
    result = agents.Runner.run_sync(agent, ASKED, max_turns=4)
    assert isinstance(result.final_output, str)
    check(result, asked)


def test_the_last_word_has_the_type_it_must_have(agent, asked):
    result = agents.Runner.run_sync(agent.clone(output_type=Report), ASKED, max_turns=4)
    assert isinstance(result.final_output, Report)
    check(result, asked)


async def streamed(agent):
    run = agents.Runner.run_streamed(agent, ASKED, max_turns=4)
    return run, [event.type async for event in run.stream_events()]


def test_a_run_may_be_streamed(agent, asked):
    result, events = asyncio.run(streamed(agent.clone(output_type=Report)))
    assert isinstance(result.final_output, Report)
    assert events.count("raw_response_event") > 20
    check(result, asked)
