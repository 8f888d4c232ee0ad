"""List of published results: complete, with unique names, sources and statuses."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import allocation_forms
import allocation_sampling
import check_in_forms
import check_ins_utility
import mean_lower_bounds
import pytest

from turnout.accounting import published
from turnout.accounting.published import Status

ROOT = Path(__file__).parents[3]
BESIDE = (
    allocation_forms,
    allocation_sampling,
    check_in_forms,
    check_ins_utility,
    mean_lower_bounds,
)
RESULTS = (*published.RESULTS, *(result for module in BESIDE for result in module.RESULTS))
MODULES = [
    "check_ins",
    "random_allocation",
    "renyi",
    "results",
]
HELPERS = {"composed", "at_total_delta", "estimate", "engine_poisson"} | {
    "at_eightfold",
    "binned",
    "log_sum_exp",
    "part_of",
    "poisson_run",
    "gaussian_log_moments",
    "randomized_response_log_moments",
    "lemma_a_3_rounds",
    "lemma_a_3_largest_delta",
    "lemma_a_3_slack",
    "lemma_a_6",
    "epsilons_by_order",
    "log_delta_at",
}


def test_names_of_published_results_are_unique():
    names = [result.name for result in RESULTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "module",
    [
        *BESIDE,
        *(importlib.import_module(f"turnout.accounting.published.{name}") for name in MODULES),
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_every_public_function_of_published_results_is_listed(module):
    public = {
        member
        for member, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not member.startswith("_")
    }
    listed = {result.function.__name__ for result in module.RESULTS}
    assert public - listed <= HELPERS
    assert set(module.RESULTS) <= set(RESULTS)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.name)
def test_a_published_result_has_its_source_and_status(result):
    text = result.function.__doc__
    assert (result.status is Status.UNSAFE) == text.startswith("UNSAFE")
    if result.status is not Status.UNSAFE:
        assert "Source:" in text
    assert set(result.directions) <= {"remove", "add", "replace"}
    assert (result.relation is None) == (not result.directions)
    assert result.range
    assert result.randomizer


def test_cited_keys_are_in_the_list_of_references():
    keys = set(re.findall(r"@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text()))
    cited = {result.source.split(",")[0] for result in RESULTS}
    papers = (ROOT / "benchmarks" / "papers").glob("*.py")
    for path in (*(ROOT / "src" / "turnout" / "accounting" / "published").glob("*.py"), *papers):
        cited |= set(re.findall(r"\(([a-z]+\d{4}\w+)[),]", path.read_text()))
    assert cited <= keys


def test_computing_epsilon_imports_no_published_bounds():
    script = (
        "import sys, turnout.accounting\nassert 'turnout.accounting.published' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
