"""Plans: training runs as TOML files; the ε of a run is computed and checked before the run."""

from typing import TYPE_CHECKING

from turnout.core.optional import loaded_on_demand

if TYPE_CHECKING:
    from turnout.plans.plan import Plan, example_plan, read_plan
    from turnout.plans.preparation import PreparedPlan, prepare
    from turnout.plans.questions import SCHEMES, Question, parse_query, solvable
    from turnout.plans.refusals import all_keys
    from turnout.plans.sections import AvailabilitySection
    from turnout.plans.sweeps import Sweep, sweep

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

__getattr__ = loaded_on_demand(
    __name__,
    {
        "plan": "Plan example_plan read_plan",
        "preparation": "PreparedPlan prepare",
        "questions": "Question SCHEMES parse_query solvable",
        "refusals": "all_keys",
        "sections": "AvailabilitySection",
        "sweeps": "Sweep sweep",
    },
)
