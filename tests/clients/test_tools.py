"""Tool calls and reasoning, as the official clients read them, from a device that says a given text."""

import contextlib
import os
import pathlib
import shutil
import subprocess

import openai
import pydantic
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAY = pathlib.Path(os.environ.get("SACCADE_SAY", ROOT / "target/debug/examples/say"))
TEMPLATE = ROOT / "crates/frontend/tests/templates/tagged.jinja"
ARGUMENTS = '{"city": "Paris", "days": 2}'
CALL = '<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>"
TEXT = f"<think>\nThey ask for weather.\n</think>\n\nI look.\n{CALL}\n{CALL}"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
USER = {"role": "user", "content": "How is the weather?"}
# The end of the scripted text: the fake device knows no other.
END = {"stop_token_ids": [268]}
REQUEST = dict(model="tiny", messages=[USER], tools=[TOOL], extra_body=END)


@contextlib.contextmanager
def saying(text):
    if not SAY.exists():
        command = ["cargo", "build", "-q", "-p", "saccade-frontend", "--example", "say"]
        subprocess.run(command, cwd=ROOT, check=True)
    process = subprocess.Popen([SAY, TEMPLATE, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def url():
    with saying(TEXT) as url:
        yield url


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)


def test_a_stream_adds_up_to_the_whole_answer(client):
    whole = client.chat.completions.create(**REQUEST).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content == "I look."
    assert whole.message.reasoning_content == whole.message.reasoning == "They ask for weather."
    calls = [(c.type, c.function.name, c.function.arguments) for c in whole.message.tool_calls]
    assert calls == [("function", "get_weather", ARGUMENTS)] * 2
    with client.chat.completions.stream(**REQUEST) as stream:
        pieces = [e for e in stream if e.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0]
    assert len(pieces) > 20, "arguments are streamed"
    assert final.finish_reason == "tool_calls"
    assert final.message.content == whole.message.content
    assert [(c.type, c.function.name, c.function.arguments) for c in final.message.tool_calls] == calls
    assert len({c.id for c in final.message.tool_calls}) == 2


def test_an_answer_goes_back_into_the_conversation(client):
    message = client.chat.completions.create(**REQUEST).choices[0].message
    answers = [{"role": "tool", "tool_call_id": c.id, "content": "22 degrees"} for c in message.tool_calls]
    for said in (message, message.model_dump()):
        again = client.chat.completions.create(**{**REQUEST, "messages": [USER, said, *answers]})
        assert again.usage.prompt_tokens > 0


def test_usage_counts_the_reasoning(client):
    usage = client.chat.completions.create(**REQUEST).usage
    # Tokens are bytes here; the last byte of the closing marker ends the reasoning.
    assert usage.completion_tokens_details.reasoning_tokens == len("\nThey ask for weather.\n</think")


def test_one_call_if_no_more_are_wanted(client):
    choice = client.chat.completions.create(parallel_tool_calls=False, **REQUEST).choices[0]
    assert len(choice.message.tool_calls) == 1 and choice.finish_reason == "tool_calls"


def test_none_leaves_text(client):
    choice = client.chat.completions.create(tool_choice="none", **REQUEST).choices[0]
    assert choice.message.tool_calls is None and CALL in choice.message.content


class Weather(pydantic.BaseModel):
    city: str


@pytest.mark.parametrize(
    ("change", "param"),
    [
        # This device walks no grammars. The helpers' tools are strict ones.
        (dict(tool_choice="required"), "tools"),
        (dict(tool_choice={"type": "function", "function": {"name": "get_weather"}}), "tools"),
        (dict(tools=[openai.pydantic_function_tool(Weather)]), "tools"),
        (dict(tools=[{"type": "function", "function": {"name": "a b"}}]), "tools[0].function.name"),
    ],
)
def test_what_cannot_be_kept_is_refused(client, change, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**REQUEST, **change})
    assert caught.value.body["param"] == param


def test_node_client(url, tmp_path):
    script = pathlib.Path(__file__).with_name("openai_node_tools.mjs")
    shutil.copy(script, tmp_path)
    os.symlink(os.environ["SACCADE_NODE_MODULES"], tmp_path / "node_modules")
    env = {**os.environ, "SACCADE_URL": url}
    subprocess.run(["node", "--test", script.name], cwd=tmp_path, env=env, check=True, timeout=120)
