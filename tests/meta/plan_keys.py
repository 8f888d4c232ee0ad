"""Tables of plan keys in examples/README.md and docs/bandits.md, generated from the plans.

``python tests/meta/plan_keys.py`` rewrites them.
"""

from __future__ import annotations

from pathlib import Path

from pydantic_core import PydanticUndefined

from turnout.plans import Plan
from turnout.plans.bandit import BanditPlan
from turnout.plans.plan import TomlPlan
from turnout.plans.refusals import choices, variants

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples" / "README.md"
PLANS: dict[Path, type[TomlPlan]] = {PAGE: Plan, ROOT / "docs" / "bandits.md": BanditPlan}
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"


def key_tables(plan: type[TomlPlan] = Plan) -> str:
    """One table for each section, and one for each participation."""
    parts = []
    for section in plan.model_fields:
        for table in variants(plan.model_fields[section]):
            law = f', law = "{table.word}"' if section == "participation" else ""
            parts.append(f"### [{section}]{law}\n\n{table.about}\n")
            parts.append("| key | default | what it is |\n|---|---|---|")
            for key, field in table.keys.items():
                words = ", ".join(f"`{word}`" for word in choices(field.annotation))
                described = f"{field.description}: {words}" if words else field.description
                parts.append(f"| `{key}` | {default(field.default)} | {described} |")
            parts.append("")
    return "\n".join(parts)


def default(value: object) -> str:
    """Default value in TOML notation."""
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "unset"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def parted(text: str) -> tuple[str, str, str]:
    """Parts of a text before, inside and after the tables."""
    before, rest = text.split(BEGIN)
    inside, after = rest.split(END)
    return before, inside, after


if __name__ == "__main__":
    for page, plan in PLANS.items():
        head, _, tail = parted(page.read_text())
        page.write_text(f"{head}{BEGIN}{key_tables(plan)}{END}{tail}")
