"""A `saccade serve` of one's own: started, waited for, asked, stopped."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_GPU = 3  # exit code
STOP_WITHIN_S = 20


class NoGpu(Exception):
    """The server said that there is none."""


def binary() -> str:
    """SACCADE_BINARY, else the release build of this clone."""
    path = pathlib.Path(os.environ.get("SACCADE_BINARY", ROOT / "target/release/saccade"))
    if not path.exists():
        raise FileNotFoundError(f"no {path}: set SACCADE_BINARY to a saccade that was built elsewhere")
    return str(path)


def device_flags(device: str) -> list[str]:
    """--device, and for a GPU the library: SACCADE_CUDA_LIBRARY, else the one of SACCADE_CUDA_BUILD."""
    flags = ["--device", device]
    if device.startswith("cuda") and "SACCADE_CUDA_LIBRARY" not in os.environ:
        build = pathlib.Path(os.environ.get("SACCADE_CUDA_BUILD", ROOT / "build/cuda"))
        flags += ["--cuda-library", str(build / "libsaccade_cuda.so")]
    return flags


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def serve(*flags: str, log: pathlib.Path, ready_within_s: float = 60):
    """Yields the base URL of `saccade serve` with these flags, ready. Raises NoGpu, or RuntimeError with
    the end of its log."""
    port = free_port()
    with open(log, "w") as output:
        process = subprocess.Popen(
            [binary(), "serve", *flags, "--port", str(port)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_ready(url, process, log, ready_within_s)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(url, process, log, within_s):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text()
            if "no CUDA driver or GPU" in said:
                raise NoGpu(next(line for line in said.splitlines() if "no CUDA driver or GPU" in line))
            raise RuntimeError(f"the server ended with {process.returncode}: {said[-500:]}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            with urllib.request.urlopen(f"{url}/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.05)
    raise RuntimeError(f"the server is not ready within {within_s} s: {log.read_text()[-500:]}")


def complete(url: str, timeout_s: float = 120, **body) -> dict:
    """The first choice of /v1/completions."""
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return json.load(answer)["choices"][0]
