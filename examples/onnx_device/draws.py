"""The client's steps, drawn from the operating system's generator before the first request."""

import os


def below(n):
    """Uniform integer in 0 … n − 1, by rejection sampling."""
    bits = (n - 1).bit_length()
    while True:
        drawn = int.from_bytes(os.urandom((bits + 7) // 8), "big") >> (-bits % 8)
        if drawn < n:
            return drawn


def coin(p):
    """True with probability p, rounded down to a multiple of 2⁻⁶²."""
    return p >= 1 or below(1 << 62) < int(p * 2**62)


def steps_of(participation, client):
    """Steps of the client under a participation, ascending; unknown names or fields are refused."""
    participation = dict(participation)
    name = participation.pop("is")
    draw, fields = _PARTICIPATIONS.get(name, (None, ()))
    if draw is None or set(participation) != set(fields):
        raise ValueError(f"unknown participation {name} with the fields {sorted(participation)}")
    return sorted(draw(client, **participation))


def _check_in(_client, window, windows, probability):
    return [k * window + below(window) for k in range(windows) if coin(probability)]


def _k_subset(_client, window, picks, windows):
    found = []
    for k in range(windows):
        chosen = set()
        for last in range(window - picks, window):  # Floyd's algorithm
            one = below(last + 1)
            chosen.add(last if one in chosen else one)
        found += [k * window + one for one in chosen]
    return found


def _fixed(_client, window, epochs, probability):
    if not coin(probability):
        return []
    slot = below(window)
    return [slot + epoch * window for epoch in range(epochs)]


def _sliding(client, window, slots, clients_per_slot):
    step = client // clients_per_slot + below(window) - (window - 1)
    return [step] if 0 <= step <= slots - window else []


def _sampled(_client, rate, steps):
    return [step for step in range(steps) if coin(rate)]


_PARTICIPATIONS = {
    "CheckIn": (_check_in, ("window", "windows", "probability")),
    "KSubset": (_k_subset, ("window", "picks", "windows")),
    "FixedAssignment": (_fixed, ("window", "epochs", "probability")),
    "SlidingWindow": (_sliding, ("window", "slots", "clients_per_slot")),
    "SelfSampling": (_sampled, ("rate", "steps")),
    "PoissonSampling": (_sampled, ("rate", "steps")),
    "EveryStep": (lambda _client, steps: range(steps), ("steps",)),
}
