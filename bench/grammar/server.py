"""A server of ours for the scripts of this folder."""

import json
import signal
import socket
import subprocess
import time
import urllib.request

READY_TIMEOUT_S = 300


class Server:
    """Its --load-format is `weights`; by default weights are random, and the seed among `flags` says which."""

    def __init__(self, binary, *flags, weights="dummy"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [binary, "serve", *map(str, flags), "--port", str(port), "--load-format", weights]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def post(self, path, body, timeout_s):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return json.load(reply)

    def __enter__(self):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/ready", timeout=2):
                    return self
            except OSError:
                time.sleep(0.2)
        self.process.kill()
        raise SystemExit("the server did not get ready")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
