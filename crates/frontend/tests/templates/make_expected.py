#!/usr/bin/env python3
"""What Hugging Face transformers renders for cases.json, into expected.json.

    python3 -m venv venv && venv/bin/pip install transformers==5.24.0 jinja2==3.1.6 && venv/bin/python make_expected.py

Three of the templates are written for these tests, in the manner of three families; they use what those families' own
use. `bundled` is the bundled model's.
"""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).resolve().parent
BUNDLED = HERE.parents[3] / "models/saccade-tiny/chat_template.jinja"
# What the test's tokenizer_config.json says.
SPECIALS = {"eos_token": "<|im_end|>"}


def for_templates(message):
    """A message as transformers documents it: arguments are objects, contents are texts."""
    message = {"content": None, **json.loads(json.dumps(message))}
    if isinstance(message["content"], list):
        message["content"] = "\n".join(part["text"] for part in message["content"])
    for call in message.get("tool_calls", []):
        text = call["function"]["arguments"]
        try:
            call["function"]["arguments"] = json.loads(text) if text else {}
        except json.JSONDecodeError:
            pass
    return message


def render(template, case, tools):
    rendered, _ = render_jinja_template(
        conversations=[[for_templates(m) for m in case["messages"]]],
        tools=tools if case.get("tools") else None,
        chat_template=(BUNDLED if template == "bundled" else HERE / f"{template}.jinja").read_text(),
        add_generation_prompt=True,
        **SPECIALS,
        **case.get("kwargs", {}),
    )
    return rendered[0]


def main():
    spec = json.loads((HERE / "cases.json").read_text())
    expected = {
        f"{template}: {case['name']}": render(template, case, spec["tools"])
        for case in spec["cases"]
        for template in case["templates"]
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
