"""Damaged copies of files and altered JSON, for tests that readers answer with a sentence."""

import copy

ODD = [None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), -0.5, "", "x", "\ud800",
       "../../x", "a\x1b[2J", [], {}, [[]], [None], {"a": 1}]  # fmt: skip


def refusals(error, attempts):
    """Messages of the calls that end in this error. Some must, some must not, and each message is a sentence."""
    messages, count = [], 0
    for count, attempt in enumerate(attempts, 1):  # noqa: B007
        try:
            attempt()
        except error as caught:
            messages.append(str(caught))
    assert 0 < len(messages) < count
    assert all(message.endswith(".") for message in messages)
    return messages


def alter(value, rng, most=4):
    """A copy of a JSON value in which up to three entries are removed or odd; of a list, of the first `most` only."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        *above, last = rng.choice([path for path in _places(value, most) if path])
        holder = value
        for key in above:
            holder = holder[key]
        if rng.random() < 0.25:
            del holder[last]
        else:
            holder[last] = copy.deepcopy(rng.choice(ODD))  # or a later change would alter ODD itself
    return value


def _places(value, most, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:most]) if isinstance(value, list) else ()
    for key, entry in inner:
        yield from _places(entry, most, (*path, key))


def damage(data, rng):
    """Flipped, set, cut, doubled or inserted bytes, or a number made huge."""
    raw = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        kind, place, span = rng.integers(6), int(rng.integers(len(raw) or 1)), int(rng.integers(1, 40))
        if kind == 0 and raw:
            raw[place] ^= 1 << int(rng.integers(8))
        elif kind == 1 and raw:
            raw[place] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == 2:
            del raw[place : place + span]
        elif kind == 3:
            raw[place:place] = raw[place : place + span]
        elif kind == 4:
            raw[place:place] = rng.bytes(span)
        else:
            raw[place : place + 10] = b"\xff" * 9 + b"\x01"
    return bytes(raw)
