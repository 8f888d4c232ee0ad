"""Options that several commands share: a randomizer, a participation and a privacy target.

`Command` and `Group` refuse an option that is given twice. The options of participations and
randomizers are built from the parameters that these declare, once a question is parsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.api.prices import Result


class Command(click.Command):
    """A command each of whose options is given at most once.

    Click takes the last of several values in silence: ``--delta 1e-6 … --delta 1e-3`` would answer
    another question than the one that a reader of the command line sees.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses an option that takes one value, or is a flag, and stands there twice."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for option, times in Counter(order).items():
                if isinstance(option, click.Option) and not option.multiple and times > 1:
                    raise click.UsageError(f"{option.opts[-1]} is given {times} times", ctx)
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command


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
PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


class LazyChoice(click.Choice[str]):
    """A choice among words that are looked up once they are needed."""

    def __init__(self, look_up: Callable[[], Sequence[str]]) -> None:
        self._look_up, self.case_sensitive = look_up, True

    @property
    def choices(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The words."""
        return tuple(self._look_up())


class SectionedCommand(Command):
    """A command whose help has its options by what they are about, by default the output."""

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


_WHO, _WHAT = "Who takes part when", "What protects one contribution"


class QuestionCommand(SectionedCommand):
    """A command that asks about a scheme; its parts are loaded once its options are needed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, sections=SECTIONS, **settings)
        self._made: dict[str, list[click.Option]] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, those of laws and randomizers first."""
        if not self._made:
            self._made = {_WHO: _law_options(), _WHAT: _randomizer_options()}
        own = super().get_params(ctx)
        taken = {each.name for each in own}
        made = [each for options in self._made.values() for each in options]
        return [*(each for each in made if each.name not in taken), *own]

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Names of parameters by their heading."""
        made = {heading: [each.name or "" for each in all_] for heading, all_ in self._made.items()}
        return {name: (*made.get(name, ()), *own) for name, own in self._sections.items()}


Said = dict[str, dict[str, list[str]]]
"""Names of schemes or randomizers by the words of their parameters, by parameter."""


def _law_options() -> list[click.Option]:
    """``--scheme``, and an option for each parameter that a law of a question has."""
    from turnout.schemes.registry import all_participations

    laws = {names.question: kind for kind, names in all_participations().items() if names.question}
    scheme = (
        f"Who takes part when: {', '.join(laws)}; or whose messages are shuffled: shuffle, "
        "subsampled-shuffle or self-sampling-shuffle (local messages that a shuffler mixes, not "
        "data loaders that shuffle)."
    )
    said: Said = {"rate": {"chance of a client in a round": ["self-sampling-shuffle"]}}
    return [
        click.Option(["--scheme"], metavar="NAME", help=scheme),
        *_options_of(laws, said, {"rate": float}),
    ]


def _randomizer_options() -> list[click.Option]:
    """``--randomizer``, and an option for each parameter that a randomizer has."""
    from turnout.randomizers.interface import all_mechanisms
    from turnout.schemes.registry import asked_randomizers

    all_mechanisms()
    kinds = asked_randomizers()
    randomizer = (
        f"What protects one contribution: {', '.join(kinds)} or table; gaussian by default. With a "
        "shuffle it need not be said: --epsilon0 means pure, with --delta0 approximate, "
        "--noise-multiplier gaussian."
    )
    return [
        click.Option(["--randomizer"], metavar="NAME", help=randomizer),
        *_options_of(kinds, {}, {}),
    ]


def _options_of(
    kinds: Mapping[str, type[Any]], said: Said, types: dict[str, Any]
) -> list[click.Option]:
    """An option for each parameter of classes that are known by these names."""
    from turnout.schemes.parameters import Domain, parameters

    for name, kind in kinds.items():
        for each in parameters(kind):
            if each.public and each.option:
                said.setdefault(each.key, {}).setdefault(each.words, []).append(name)
                types[each.key] = WHOLE if each.domain is Domain.COUNT else float
    options: list[click.Option] = []
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
    _WHAT: ("pair_file",),
    "Privacy target": ("delta", "relation", "tolerance"),
}
"""Options of a question by their heading, but for those of laws and randomizers."""
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
        "--pair-file",
        metavar="FILE",
        help="CSV file of outcome probabilities, columns present and absent (table).",
    ),
)
_TARGET = (
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


def all_of(*options: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that adds options, in the order in which they are written."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


question_options = all_of(*_SCHEME, *_TARGET, _TOLERANCE, _JSON)
"""Options of a scheme and of what is asked about it."""
target_options = all_of(*_SCHEME, *_TARGET, _JSON)
"""Options of a scheme at a δ, where no bracket is asked for."""
scheme_options = all_of(*_SCHEME, _JSON)
"""Options of a scheme alone."""


def show(found: Result, *, as_json: bool) -> None:
    """Prints what a verb returned, as JSON or as a table."""
    if as_json:
        click.echo(found.to_json())
        return
    from rich.console import Console

    Console().print(found.table())


def picture_path(picture: str | None) -> Path | None:
    """The file of the picture; refused before anything is read, since a run costs privacy."""
    if picture is None:
        return None
    require("plots", what="--picture")
    from turnout.reporting.drawing import check_format

    return check_format(picture)
