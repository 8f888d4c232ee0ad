"""Noise has the promised size under all release rules, and fresh draws in each step."""

import numpy as np
import pytest
from numpy_task import MeanTask
from scipy import stats
from simulation_cases import simulation

from turnout.core.aggregates import UpdateSum
from turnout.randomness import SimulationStreams
from turnout.schemes import EveryStep, ReleaseRule
from turnout.simulation import engine

FALSE_ALARM = 1e-9
STEPS, SIGMA, CLIP, POPULATION, WIDE = 6, 2.5, 0.6, 4, 4096
SCALE = {
    ReleaseRule.AGGREGATED: 1 / POPULATION,
    ReleaseRule.ONE_CLIENT: 1.0,
    ReleaseRule.AVERAGED: 1 / np.sqrt(POPULATION),
}


class SilentTask(MeanTask):
    """Task whose updates are zero, so that a model is the sum of the noise; it keeps all models."""

    def __init__(self):
        super().__init__(POPULATION, WIDE)
        self.models = []

    def initial_parameters(self, generator):
        return np.zeros(self.dimension, np.float64)

    def clipped_sum(self, parameters, clients, clip_norm):
        return UpdateSum(np.zeros(self.dimension), clients.size)

    def evaluate(self, parameters):
        self.models.append(parameters.copy())
        return super().evaluate(parameters)


class PlainDescent:
    def init(self, parameters):
        return {}

    def update(self, parameters, state, direction, step):
        return parameters + direction, state

    def released(self, parameters, state):
        return parameters


def noises(release):
    """Noise of each step, divided by the deviation that the rule promises, shape (STEPS, WIDE)."""
    task = SilentTask()
    run = simulation(
        EveryStep(STEPS),
        release,
        sigma=SIGMA,
        task=task,
        clip_norm=CLIP,
        optimizer=PlainDescent(),
        evaluate_every=1,
        minibatch=1,
    )
    run.run()
    return np.diff(task.models, axis=0) / (SIGMA * CLIP * SCALE[release])


def standard(sample):
    """Whether every row has standard deviation 1."""
    squares = (sample**2).sum(axis=1)
    tails = np.minimum(stats.chi2.cdf(squares, WIDE), stats.chi2.sf(squares, WIDE))
    return bool((2 * tails > FALSE_ALARM).all())


def fresh(sample):
    """Whether no two rows are correlated; their inner products are about N(0, WIDE)."""
    products = (sample @ sample.T)[np.triu_indices(len(sample), 1)]
    return bool((np.abs(products) <= stats.norm.isf(FALSE_ALARM / 2) * np.sqrt(WIDE)).all())


@pytest.mark.parametrize("release", ReleaseRule)
def test_every_step_has_independent_noise_of_the_stated_size(release):
    sample = noises(release)
    assert standard(sample)
    assert fresh(sample)
    assert not standard(1.1 * sample)
    assert not standard(sample / 1.1)
    assert not standard(sample / np.sqrt(POPULATION))


def same_stream(self, step):
    generator = self.streams.generator("noise", 0)
    return lambda std, dimension: std * generator.standard_normal(dimension)


def no_noise(self, step):
    return lambda std, dimension: np.zeros(dimension)


def variance_for_deviation(self, step):
    generator = SimulationStreams(0).generator("noise", step)
    return lambda std, dimension: std**2 * generator.standard_normal(dimension)


@pytest.mark.parametrize("mutant", [same_stream, no_noise, variance_for_deviation])
def test_an_engine_with_wrong_noise_is_detected(mutant, mutate):
    mutate(engine.Setup, "noise", mutant)
    for release in ReleaseRule:
        sample = noises(release)
        assert not (standard(sample) and fresh(sample))
