"""Damaged copies of files, for tests that readers answer with a sentence."""


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
