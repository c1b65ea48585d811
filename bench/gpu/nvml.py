"""The energy counter of a GPU, from the driver's own library: nothing needs to be installed."""

import ctypes
import threading
import time

LIBRARY = "libnvidia-ml.so.1"


class NotCounted(Exception):
    """There is no driver, no GPU, or none that counts its energy; the text says which."""


class Counter:
    """Joules since the driver was loaded, of the first GPU."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NotCounted(str(error)) from None
        self._call("nvmlInit_v2")
        self.device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(0), ctypes.byref(self.device))
        self.read()

    def _call(self, name, *arguments):
        code = getattr(self.nvml, name)(*arguments)
        if code != 0:
            text = self.nvml.nvmlErrorString
            text.restype = ctypes.c_char_p
            raise NotCounted(f"{name}: {text(code).decode()}")

    def read(self) -> float:
        millijoules = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(millijoules))
        return millijoules.value / 1e3


class Sampler:
    """Reads a counter while the body of `with` runs; afterwards gives the joules between two moments."""

    INTERVAL_S = 0.05

    def __init__(self, counter):
        self.counter = counter
        self.samples = []  # (seconds since 1970, joules), rising
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _sample(self):
        self.samples.append((time.time(), self.counter.read()))

    def _run(self):
        while not self.ended.wait(self.INTERVAL_S):
            self._sample()

    def __enter__(self):
        self._sample()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self._sample()

    def joules(self, begin_s, end_s):
        """Between two moments, seconds since 1970; straight lines between samples."""
        return self._at(end_s) - self._at(begin_s)

    def _at(self, moment):
        before = self.samples[0]
        for after in self.samples[1:]:
            if after[0] >= moment:
                share = (moment - before[0]) / (after[0] - before[0])
                return before[1] + min(max(share, 0), 1) * (after[1] - before[1])
            before = after
        return before[1]
