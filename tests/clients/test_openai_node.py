"""Runs the tests of the official Node client."""

import os
import pathlib
import shutil
import subprocess


def test_node_client(server, tmp_path):
    script = pathlib.Path(__file__).with_name("openai_node.mjs")
    # ES modules resolve packages from where the file lies.
    shutil.copy(script, tmp_path)
    os.symlink(os.environ["SACCADE_NODE_MODULES"], tmp_path / "node_modules")
    env = {**os.environ, "SACCADE_URL": server}
    subprocess.run(["node", "--test", script.name], cwd=tmp_path, env=env, check=True, timeout=120)
