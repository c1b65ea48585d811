"""The page, in headless Chromium."""

import os
import pathlib
import shutil
import subprocess


def test_page(server, tmp_path):
    script = pathlib.Path(__file__).with_name("page.mjs")
    shutil.copy(script, tmp_path)
    os.symlink(os.environ["SACCADE_NODE_MODULES"], tmp_path / "node_modules")
    env = {**os.environ, "SACCADE_URL": server, "SACCADE_SHOTS": os.environ.get("SACCADE_SHOTS", "")}
    subprocess.run(["node", "--test", script.name], cwd=tmp_path, env=env, check=True, timeout=180)
