"""Runs the tests of the official Node client."""

import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import serve
from test_calls import TEMPLATE


@pytest.fixture(scope="module")
def tool_server():
    with serve("--kv-cache-memory-bytes", "64000000", "--chat-template", str(TEMPLATE)) as url:
        yield url


@pytest.mark.parametrize(
    ("script", "started"), [("openai_node.mjs", "server"), ("openai_node_zod.mjs", "tool_server")]
)
def test_node_client(script, started, request, tmp_path):
    # ES modules resolve packages from where the file lies.
    shutil.copy(pathlib.Path(__file__).with_name(script), tmp_path)
    os.symlink(os.environ["SACCADE_NODE_MODULES"], tmp_path / "node_modules")
    env = {**os.environ, "SACCADE_URL": request.getfixturevalue(started)}
    subprocess.run(["node", "--test", script], cwd=tmp_path, env=env, check=True, timeout=120)
