"""A running server per test session, and helpers to start others."""

import contextlib
import os
import signal
import socket
import subprocess
import time

import pytest
import requests

BINARY = os.environ.get("SACCADE_BINARY", "target/release/saccade")
READY_WITHIN_S = 60


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def serve(*flags: str):
    """Yields the base URL of `saccade serve` with these flags, ready."""
    port = free_port()
    command = [BINARY, "serve", *flags, "--port", str(port), "--log", "warn"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < deadline, "the server is not ready in time"
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(f"{url}/ready", timeout=5).status_code == 200:
                    break
            time.sleep(0.05)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="session")
def server():
    with serve("--kv-cache-memory-bytes", "256000000") as url:
        yield url


@pytest.fixture(scope="session")
def keyed_server():
    with serve("--api-key", "secret", "--kv-cache-memory-bytes", "64000000") as url:
        yield url
