"""OpenDP's discrete Gaussian on a vector of integers: nanoseconds per coordinate.

benchmarks/noise.py runs this script with the interpreter of OpenDP's environment. It prints a JSON
list with one number for each standard deviation. The list of integers that OpenDP needs is made
before the measurement.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import opendp.prelude as dp


def nanoseconds(deviation: float, size: int, repeats: int) -> float:
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    noise = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=deviation)
    zeros, seconds = [0] * size, []
    for _ in range(repeats):
        started = time.process_time()
        noise(zeros)
        seconds.append(time.process_time() - started)
    return statistics.median(seconds) / size * 1e9


if __name__ == "__main__":
    dp.enable_features("contrib")
    size, repeats, *deviations = sys.argv[1:]
    print(json.dumps([nanoseconds(float(s), int(size), int(repeats)) for s in deviations]))
