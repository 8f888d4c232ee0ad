"""Options that ``account`` and ``calibrate`` share: a randomizer, a law and a promise.

Those of laws are made of what laws say of their own parameters, once a question is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any

import click

from turnout.cli.commands import Command

_MOST_DIGITS = 30  # of a whole number: 1e999999999 is one, too


class WholeNumber(click.ParamType):
    """A whole number, written in any way that is no fraction: 100000, 100_000 or 1e5."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, which may be below 0."""
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite() or number.adjusted() >= _MOST_DIGITS or number != int(number):
            self.fail(f"{value!r} is not a whole number, such as 100000 or 1e5.", param, ctx)
        return int(number)


WHOLE = WholeNumber()


class SectionedCommand(Command):
    """A command whose help has its options by what they are about.

    Args:
        sections: names of parameters by their heading; all others are about the output.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Sequence[str]], **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self._sections = sections

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Names of parameters by their heading."""
        return self._sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one section for each kind of option."""
        headings = {
            name: heading for heading, names in self.sections(ctx).items() for name in names
        }
        records: dict[str, list[tuple[str, str]]] = {
            name: [] for name in (*self.sections(ctx), _OTHERS)
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                records[headings.get(parameter.name or "", _OTHERS)].append(record)
        for heading, lines in records.items():
            if lines:
                with formatter.section(heading):
                    formatter.write_dl(lines)


_WHO = "Who takes part when"


class QuestionCommand(SectionedCommand):
    """A command that asks about a scheme; laws are loaded once its options are needed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, sections=SECTIONS, **settings)
        self._laws: list[click.Option] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, those of laws first among them that say who takes part."""
        if self._laws is None:
            self._laws = _law_options()
        own = super().get_params(ctx)
        first = next(i for i, each in enumerate(own) if each.name == SECTIONS[_WHO][0])
        taken = {each.name for each in own}
        return [
            *own[:first],
            *(each for each in self._laws if each.name not in taken),
            *own[first:],
        ]

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Names of parameters by their heading."""
        laws = [each.name or "" for each in self._laws or ()]
        return {**self._sections, _WHO: (*laws, *self._sections[_WHO])}


def _law_options() -> list[click.Option]:
    """``--scheme``, and an option for each parameter that a law of a question has."""
    from turnout.spec.parameters import Domain, parameters
    from turnout.spec.registry import all_laws

    laws = {names.question: kind for kind, names in all_laws().items() if names.question}
    said = {"rate": {"chance of a client in a round": ["self-sampled-shuffle"]}}
    types: dict[str, Any] = {"rate": float}
    for name, kind in laws.items():
        for each in parameters(kind):
            if each.public and each.option:
                said.setdefault(each.name, {}).setdefault(each.words, []).append(name)
                types[each.name] = WHOLE if each.domain is Domain.COUNT else float
    scheme = (
        f"Who takes part when: {', '.join(laws)}; or whose messages are shuffled: shuffle, "
        "subsampled-shuffle or self-sampled-shuffle (local messages that a shuffler mixes, not "
        "data loaders that shuffle)."
    )
    options = [click.Option(["--scheme"], metavar="NAME", help=scheme)]
    for name, words in said.items():
        text = "; ".join(f"{phrase} ({', '.join(names)})" for phrase, names in words.items())
        flag = "--" + name.replace("_", "-")
        options.append(
            click.Option([flag], type=types[name], help=f"{text[:1].upper()}{text[1:]}.")
        )
    return options


SECTIONS = {
    "Target": ("epsilon", "solve_for"),
    _WHO: ("clients", "rounds", "sampled", "order", "release"),
    "What protects one contribution": (
        *("randomizer", "noise_multiplier", "scale", "epsilon0", "delta0", "categories"),
        *("standard_deviation", "sensitivity", "pair_file"),
    ),
    "Promise": ("delta", "relation", "tolerance"),
}
"""Options of a question by their heading, but for those of laws."""
_OTHERS = "Output"

_SCHEME = (
    click.option(
        "--clients",
        type=WHOLE,
        help="Clients there are, who all follow the protocol (the shuffles; check-in with "
        "--release averaged).",
    ),
    click.option("--rounds", type=WHOLE, help="Rounds, default 1 (the shuffles)."),
    click.option(
        "--sampled", type=WHOLE, help="Clients who send a message in a round (subsampled-shuffle)."
    ),
    click.option(
        "--order",
        metavar="NAME",
        help="Who may know which client sends which message (the shuffles): hidden (nobody, the "
        "default with pure and approximate, which need it) or known (anything else).",
    ),
    click.option(
        "--release",
        metavar="NAME",
        help="What a step releases: aggregated (default), one-client or averaged.",
    ),
    click.option(
        "--randomizer",
        metavar="NAME",
        help="What protects one contribution: gaussian (default), laplace, pure, approximate, "
        "fixed, kary-response, hadamard-response, bit-response, discrete-gaussian, "
        "rounded-gaussian or table. With a shuffle it need not be said: --epsilon0 means pure, "
        "with --delta0 approximate, --noise-multiplier gaussian.",
    ),
    click.option(
        "--noise-multiplier", type=float, help="Noise standard deviation / clip norm (gaussian)."
    ),
    click.option("--scale", type=float, help="Noise scale / clip bound (laplace)."),
    click.option(
        "--epsilon0",
        type=float,
        help="The randomizer's own ε₀ (pure, approximate, fixed and the responses).",
    ),
    click.option("--delta0", type=float, help="The randomizer's own δ₀ (approximate)."),
    click.option("--categories", type=WHOLE, help="Categories, default 2 (kary-response)."),
    click.option(
        "--standard-deviation",
        type=float,
        help="Noise standard deviation in integers (discrete-gaussian, rounded-gaussian).",
    ),
    click.option(
        "--sensitivity",
        type=WHOLE,
        help="Largest contribution in integers, default 1 (discrete-gaussian, rounded-gaussian).",
    ),
    click.option(
        "--pair-file",
        metavar="FILE",
        help="CSV file of outcome probabilities, columns present and absent (table).",
    ),
)
_PROMISE = (
    click.option("--delta", type=float, help="The δ of (ε, δ); required."),
    click.option(
        "--relation",
        metavar="NAME",
        help="Neighbouring relation: add-remove, zero-out or replace-one; required, but for the "
        "shuffles, which have replace-one alone.",
    ),
)
_TOLERANCE = click.option(
    "--tolerance",
    type=float,
    help="Largest (upper − lower) / upper asked for, default 0.001; the time it takes grows.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def _all(*options: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that adds options, in the order in which they are written."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


question_options = _all(*_SCHEME, *_PROMISE, _TOLERANCE, _JSON)
"""Options of a scheme and of what is asked about it."""
promise_options = _all(*_SCHEME, *_PROMISE, _JSON)
"""Options of a scheme at a δ, where no bracket is asked for."""
scheme_options = _all(*_SCHEME, _JSON)
"""Options of a scheme alone."""
