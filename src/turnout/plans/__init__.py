"""Plans: a training run as one TOML file, checked against accounting before anything runs."""

from typing import TYPE_CHECKING

from turnout.core.optional import loaded_on_demand

if TYPE_CHECKING:
    from turnout.plans.laws import AvailabilitySection
    from turnout.plans.plan import Plan, example_plan, read_plan
    from turnout.plans.preparation import PreparedPlan, prepare
    from turnout.plans.questions import SCHEMES, Question, parse_query, solvable
    from turnout.plans.refusals import all_keys
    from turnout.plans.sweeps import Sweep, sweep

__getattr__ = loaded_on_demand(
    __name__,
    {
        "laws": "AvailabilitySection",
        "plan": "Plan example_plan read_plan",
        "preparation": "PreparedPlan prepare",
        "questions": "SCHEMES Question parse_query solvable",
        "refusals": "all_keys",
        "sweeps": "Sweep sweep",
    },
)

__all__ = [
    "SCHEMES",
    "AvailabilitySection",
    "Plan",
    "PreparedPlan",
    "Question",
    "Sweep",
    "all_keys",
    "example_plan",
    "parse_query",
    "prepare",
    "read_plan",
    "solvable",
    "sweep",
]
