"""Frequencies by pure-ldp 1.2 and multi-freq-ldpy 0.2.5, as their documentation uses them.

../frequencies.py runs this script with the interpreter of environments/frequencies. It prints one
JSON line for each mechanism: CPU-seconds of encoding all clients' messages and of estimating
frequencies, each for ``clients`` clients, and the ℓ1 error of the estimates. Compilation by numba
and the construction of objects are not counted. Messages are encoded and given to the server in
blocks of clients, so that bitmaps (8 bytes per bit in both packages) fit in memory.

A server that hashes every item for every client takes minutes; with ``--slow-clients`` it receives
only the messages of so many clients, and the output reports the number.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial

import numpy as np
from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, SS, UE
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.hadamard_mechanism import HadamardMechClient, HadamardMechServer
from pure_ldp.frequency_oracles.hadamard_response import (
    HadamardResponseClient,
    HadamardResponseServer,
)
from pure_ldp.frequency_oracles.local_hashing import (
    FastLHClient,
    FastLHServer,
    LHClient,
    LHServer,
)
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

BLOCK = 20_000
"""Clients per block of messages: 160 MB of bitmaps at k = 1000."""


def cpu() -> float:
    return time.process_time()


def answer(labels, values, client, server):
    """Measure a mechanism: ``client(value)`` encodes, ``server()`` returns (receive, estimate)."""
    # The first message compiles what is not compiled yet.
    client(values[0])
    take, estimate = server()
    made = taken = 0.0
    # Encode and count one block of messages at a time.
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        begun = cpu()
        messages = [client(value) for value in block]
        between = cpu()
        take(messages)
        made += between - begun
        taken += cpu() - between
    begun = cpu()
    frequencies = np.asarray(estimate(), dtype=float)
    taken += cpu() - begun
    # ℓ1 error of the normalised estimates.
    truth = np.bincount(values, minlength=len(frequencies)) / len(values)
    error = float(np.abs(frequencies / frequencies.sum() - truth).sum())
    row = {**labels, "clients": len(values)} | {
        "client_seconds": made,
        "server_seconds": taken,
        "l1": error,
    }
    print(json.dumps(row), flush=True)


def pure(client, server, k):
    def fresh():
        # The package's own simplex projection, so that errors can be compared.
        estimate = partial(server.estimate_all, range(k), suppress_warnings=True, normalization=2)
        return server.aggregate_all, estimate

    return client.privatise, fresh


def pure_mechanisms(epsilon, k):
    same = {"index_mapper": lambda item: item}
    for name, optimised in (("symmetric unary", False), ("optimised unary", True)):
        pair = UEClient(epsilon, k, optimised, **same), UEServer(epsilon, k, optimised, **same)
        yield name, *pure(*pair, k)
    yield "k-ary response", *pure(DEClient(epsilon, k, **same), DEServer(epsilon, k, **same), k)
    server = HadamardResponseServer(epsilon, k, **same)
    client = HadamardResponseClient(epsilon, k, server.get_hash_funcs(), **same)
    yield "Hadamard response", *pure(client, server, k)
    # The package's transform needs domains whose size is a power of two.
    size = 1 << (k - 1).bit_length()
    pair = (
        HadamardMechClient(epsilon, size, 1, **same),
        HadamardMechServer(epsilon, size, 1, **same),
    )
    yield "one-bit Hadamard", *pure(*pair, k)
    server = FastLHServer(epsilon, k, k, use_olh=True, **same)
    client = FastLHClient(epsilon, k, k, use_olh=True, **same)
    yield "local hashing (k functions)", *pure(client, server, k)
    for name, optimal in (("binary hashing", False), ("local hashing", True)):
        pair = LHClient(epsilon, k, 2, optimal, **same), LHServer(epsilon, k, 2, optimal, **same)
        yield name, *pure(*pair, k)


def multi(client, aggregate, add=None):
    """Adapter for aggregators that need all messages at once; bitmaps are summed by block."""

    def fresh():
        messages, total = [], []

        def take(block):
            if add is None:
                messages.extend(block)
            else:
                total.append(add(block))

        return take, lambda: aggregate(messages if add is None else total)

    return client, fresh


def multi_mechanisms(epsilon, k, n):
    # Each mechanism by the package's own client and aggregator.
    yield (
        "k-ary response",
        *multi(
            lambda v: GRR.GRR_Client(v, k, epsilon),
            lambda reports: GRR.GRR_Aggregator_MI(reports, k, epsilon),
        ),
    )
    yield (
        "subset selection",
        *multi(
            lambda v: SS.SS_Client(v, k, epsilon),
            lambda reports: SS.SS_Aggregator_MI(reports, k, epsilon),
        ),
    )
    # Unary encodings, of which only the sum of bitmaps is kept.
    for name, optimal in (("symmetric unary", False), ("optimised unary", True)):
        p = np.exp(epsilon / 2) / (np.exp(epsilon / 2) + 1)
        p, q = (0.5, 1 / (np.exp(epsilon) + 1)) if optimal else (p, 1 - p)
        yield (
            name,
            *multi(
                lambda v, optimal=optimal: UE.UE_Client(v, k, epsilon, optimal),
                lambda sums, p=p, q=q: UE.MI(sum(sums), n, p, q),
                sum,
            ),
        )
    for name, optimal in (("binary hashing", False), ("local hashing", True)):
        yield (
            name,
            *multi(
                lambda v, optimal=optimal: LH.LH_Client(v, k, epsilon, optimal),
                lambda reports, optimal=optimal: LH.LH_Aggregator_MI(reports, k, epsilon, optimal),
            ),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("values", help="npy file with the clients' items")
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--slow-clients", type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    array, k = np.load(given.values), given.items
    everybody = array.tolist()
    for package, mechanisms in (
        ("pure-ldp", pure_mechanisms(given.epsilon, k)),
        ("multi-freq-ldpy", multi_mechanisms(given.epsilon, k, len(everybody))),
    ):
        for mechanism, client, server in mechanisms:
            slow = mechanism in ("binary hashing", "local hashing")
            values = everybody[: given.slow_clients] if slow else everybody
            answer({"package": package, "mechanism": mechanism}, values, client, server)


if __name__ == "__main__":
    main()
