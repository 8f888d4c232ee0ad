"""Users per CPU-second of JAX Privacy: python jax_updates.py BATCH ROUNDS

Each user has one example; a round is the compiled sum of clipped gradients on one thread. The
script prints one JSON object for each microbatch size. benchmarks/own_modules.py runs it.
"""

from __future__ import annotations

import json
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax_privacy import clipping

AT_ONCE = (1000, 250, 100)


def network(parameters: dict[str, jax.Array], image: jax.Array) -> jax.Array:
    """Scores of the network tanh-cnn-13k (13,706 parameters) for one image (28, 28, 1)."""

    def convolved(values: jax.Array, name: str, stride: int, padding: int) -> jax.Array:
        made = lax.conv_general_dilated(
            values[None],
            parameters[f"{name}.kernel"],
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return made[0] + parameters[f"{name}.bias"]

    def pooled(values: jax.Array) -> jax.Array:
        return lax.reduce_window(values, -jnp.inf, lax.max, (2, 2, 1), (1, 1, 1), "VALID")

    values = jnp.tanh(pooled(convolved(image, "first", 2, 3)))
    values = jnp.tanh(pooled(convolved(values, "second", 2, 0)))
    values = jnp.tanh(values.reshape(-1) @ parameters["hidden"] + parameters["hidden.bias"])
    return values @ parameters["scores"] + parameters["scores.bias"]


def parameters() -> dict[str, jax.Array]:
    """Randomly drawn parameters."""
    shapes = {
        "first.kernel": (8, 8, 1, 16),
        "first.bias": (16,),
        "second.kernel": (4, 4, 16, 16),
        "second.bias": (16,),
        "hidden": (256, 32),
        "hidden.bias": (32,),
        "scores": (32, 10),
        "scores.bias": (10,),
    }
    random = np.random.default_rng(1)
    made = {
        name: jnp.asarray(random.normal(size=s) / 10, jnp.float32) for name, s in shapes.items()
    }
    assert sum(value.size for value in made.values()) == 13_706
    return made


def loss(at: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean loss of a batch; JAX Privacy keeps a batch axis of one."""
    scores = jax.vmap(network, in_axes=(None, 0))(at, images)
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one thread, as for all other packages
    batch, rounds = map(int, sys.argv[1:3])
    random, at = np.random.default_rng(2), parameters()
    images = jnp.asarray(random.random((batch, 28, 28, 1), np.float32))
    labels = jnp.asarray(random.integers(0, 10, batch))
    for at_once in AT_ONCE:
        step = jax.jit(
            clipping.clipped_grad(
                loss, l2_clip_norm=1.0, batch_argnums=(1, 2), microbatch_size=at_once
            )
        )
        jax.block_until_ready(step(at, images, labels))
        seconds = []
        for _ in range(rounds):
            start = time.process_time()
            jax.block_until_ready(step(at, images, labels))
            seconds.append(time.process_time() - start)
        print(json.dumps({"mode": "clipped_grad", "at_once": at_once, "cpu_seconds": seconds}))


if __name__ == "__main__":
    main()
