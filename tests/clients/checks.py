"""What a server says about tokens, compared with what Hugging Face transformers computed."""

import requests

NUM_TOP = 5


def complete(url, **body):
    """The choice of a completion whose tokens come as ids, prompt included, with alternatives."""
    asked = {"echo": True, "logprobs": NUM_TOP, "ignore_eos": True, "return_tokens_as_token_ids": True}
    answer = requests.post(f"{url}/v1/completions", json={**asked, **body}, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def token_ids(choice):
    return [token_id(token) for token in choice["logprobs"]["tokens"]]


def token_id(token):
    return int(token.removeprefix("token_id:"))


def check_close(expected, got, tolerance, what):
    assert len(expected) == len(got), what
    for i, (e, g) in enumerate(zip(expected, got)):
        assert (e is None) == (g is None), (what, i)
        assert e is None or abs(e - g) <= tolerance, (what, i, e, g)


def check_alternatives(expected, got, tolerance):
    """The best five at each position. `expected`: [id, logprob], best first; `got`: by token."""
    for position, alternatives in enumerate(expected):
        if alternatives is not None:
            # The text's own token is listed in addition to the five if it is not among them.
            named = {token_id(token): value for token, value in got[position].items()}
            best = sorted(named.items(), key=lambda item: -item[1])[: len(alternatives)]
            fault = alternatives_fault(alternatives, best, tolerance)
            assert fault is None, (position, fault, alternatives, best)


def alternatives_fault(expected, got, tolerance):
    """Why `got` are not the reference's best tokens with their values, or None. A token may have another rank, or
    give way to one that the reference does not list, only where values are within `tolerance` of each other."""
    own = dict(map(tuple, expected))
    if len(got) != len(expected):
        return f"{len(got)} alternatives"
    for rank, (token, value) in enumerate(got):
        if abs(value - expected[rank][1]) > tolerance:
            return f"rank {rank}: {value}"
        if token in own and abs(value - own[token]) > tolerance:
            return f"token {token}: {value}, not {own[token]}"
        if token not in own and value > expected[-1][1] + tolerance:
            return f"token {token} is none of the reference's"
    for token in own.keys() - dict(got).keys():
        if own[token] > got[-1][1] + tolerance:
            return f"token {token} is missing"
    return None


def test_alternatives_are_compared_by_token():
    expected = [[7, -0.5], [8, -1.0], [9, -1.0005], [4, -3.0]]
    same = [
        [(7, -0.5), (8, -1.0), (9, -1.0005), (4, -3.0)],
        [(7, -0.5), (9, -1.0001), (8, -1.0002), (4, -3.0)],
        [(7, -0.5), (8, -1.0), (9, -1.0005), (2, -3.0004)],
    ]
    other = [
        [(8, -0.5), (7, -1.0), (9, -1.0005), (4, -3.0)],
        [(7, -0.5), (8, -1.0), (9, -1.0005), (4, -2.9)],
        [(7, -0.5), (2, -1.0), (9, -1.0005), (4, -3.0)],
        [(7, -0.5), (8, -1.0), (9, -1.0005)],
    ]
    assert [alternatives_fault(expected, got, 1e-3) for got in same] == [None] * 3
    assert all(alternatives_fault(expected, got, 1e-3) for got in other)
