"""What documents say about the emulated H100 under CPU hogs."""
from claims import Claim
from raw import fixed, record
from runs import EMULATED as COMMIT

WITHIN = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)  # requests/s that both placements keep up with
BEYOND = (24, 32)


def summary(rate, server, beside):
    cells = record(COMMIT, "emulated", f"rate-{rate}")["cells"]
    return next(c["summary"] for c in cells if c["server"] == server and (c["condition"] != "isolation") == beside)


def kept(rate, server):
    return summary(rate, server, True)["achieved_rps"] / summary(rate, server, False)["achieved_rps"]


def tpot(rate, server):
    return summary(rate, server, True)["tpot_ms"]["p99"] / summary(rate, server, False)["tpot_ms"]["p99"]


def ttft_p99_s(rate, server, beside):
    return summary(rate, server, beside)["from_intended"]["ttft_ms"]["p99"] / 1e3


def spread(of, server, rates, digits, names=("least", "most")):
    values = [of(rate, server) for rate in rates]
    return dict(zip(names, (fixed(min(values), digits), fixed(max(values), digits))))


ALL = (*WITHIN, 16, *BEYOND)

README = [
    Claim("With the scheduler on the host, requests completed per second of the steady window are {least} to {most} "
          "times those "
          "alone at 1 to 12 requests/s", spread(kept, "host", WITHIN, 2)),
    Claim("at 16 its line grows beside the hogs (P99 TTFT {beside} s, {alone} s alone)", {
        "beside": fixed(ttft_p99_s(16, "host", True), 1), "alone": fixed(ttft_p99_s(16, "host", False), 1)}),
    Claim("at 24 and 32, which is overload alone too, they are {r24} and {r32} times", {
        f"r{rate}": fixed(kept(rate, "host")) for rate in BEYOND}),
    Claim("P99 TPOT is {least} to {most} times that alone. With the scheduler on the device they are",
          spread(tpot, "host", ALL, 1)),
    Claim("With the scheduler on the device they are {least} to {most} times", spread(kept, "device", ALL, 2)),
    Claim("and P99 TPOT {least} to {most} times, at all loads", spread(tpot, "device", ALL, 2)),
]
