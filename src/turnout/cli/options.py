"""Options that several commands share: a randomizer, a participation and a privacy target.

`Command` and `Group` refuse an option that is given twice. `QuestionCommand` makes the options of a
scheme and of a privacy target from their settings (`turnout.schemes.settings`), and `option_of`
one option of a setting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.core.optional import require
from turnout.core.suggestions import nearest

if TYPE_CHECKING:
    from turnout.api.price import Result
    from turnout.schemes.parameters import Parameter


class Command(click.Command):
    """Command that accepts each option at most once.

    Click takes the last of several values in silence: ``--delta 1e-6 … --delta 1e-3`` would answer
    another question than the one that a reader of the command line sees.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that takes one value, or is a flag, and is given twice."""
        if not ctx.resilient_parsing:
            try:
                _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            except click.NoSuchOption as error:
                known = [flag for each in self.get_params(ctx) for flag in each.opts]
                meant = nearest(error.option_name, known)
                raise click.UsageError(_unknown("option", error.option_name, meant), ctx) from None
            for option, times in Counter(order).items():
                if isinstance(option, click.Option) and not option.multiple and times > 1:
                    raise click.UsageError(f"{option.opts[-1]} is given {times} times", ctx)
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """Group of such commands."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Command of the first argument; an unknown one is an error with a suggestion."""
        name = args[0]
        known = self.get_command(ctx, name) is not None
        if not known and not ctx.resilient_parsing and not name.startswith("-"):
            meant = nearest(name, self.list_commands(ctx))
            raise click.UsageError(_unknown("command", name, meant), ctx)
        return super().resolve_command(ctx, args)


def _unknown(what: str, name: str, meant: str | None) -> str:
    """Message about an unknown option or command."""
    return f"No such {what} {name!r}." + (f" Did you mean {meant!r}?" if meant else "")


_MOST_DIGITS = 30  # of a whole number: 1e999999999 is one, too


class WholeNumber(click.ParamType):
    """Whole number in any notation without a fraction: 100000, 100_000 or 1e5."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Whole number, which may be negative."""
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite() or number.adjusted() >= _MOST_DIGITS or number != int(number):
            self.fail(f"{value!r} is not a whole number, such as 100000 or 1e5.", param, ctx)
        return int(number)


class Number(click.ParamType):
    """Number in any notation, or a fraction of two numbers, such as 256/60000."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Number as float64."""
        above, slash, below = str(value).partition("/")
        try:
            return float(above) / float(below) if slash else float(above)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number, such as 0.5, 1e-6 or 256/60000.", param, ctx)


WHOLE = WholeNumber()
NUMBER = Number()
PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


class LazyChoice(click.Choice[str]):
    """Choice among words that are computed at first use."""

    def __init__(self, look_up: Callable[[], Sequence[str]]) -> None:
        self._look_up, self.case_sensitive = look_up, True

    @property
    def choices(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Possible words."""
        return tuple(self._look_up())


class SectionedCommand(Command):
    """Command whose help groups options by topic, by default the output."""

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


_WHO, _WHAT, _TARGET = "Who takes part when", "What protects one contribution", "Privacy target"


class QuestionCommand(SectionedCommand):
    """A command about a scheme, whose options are made from the settings of schemes.

    The options are made once they are needed: that loads all participations and randomizers.

    Args:
        target: keys of the settings of the privacy target that the command takes.
        sections: names of the command's own parameters by their heading.
    """

    def __init__(
        self,
        *arguments: Any,
        target: Sequence[str] = (),
        sections: Mapping[str, Sequence[str]] | None = None,
        **settings: Any,
    ) -> None:
        own = {**(sections or {}), _ASKED: ("epsilon", "solve_for")}
        super().__init__(*arguments, sections=own, **settings)
        self._target = target
        self._made: dict[str, list[click.Option]] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, those of participations and randomizers first."""
        if not self._made:
            self._made = {_WHO: _scheme_options(), _WHAT: _randomizer_options()}
            if self._target:
                self._made[_TARGET] = _target_options(self._target)
        own = super().get_params(ctx)
        taken = {each.name for each in own}
        made = [each for options in self._made.values() for each in options]
        return [*(each for each in made if each.name not in taken), *own]

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Names of parameters by their heading."""
        made = {heading: [each.name or "" for each in all_] for heading, all_ in self._made.items()}
        return {**self._sections, **made}


_ASKED, _OTHERS = "Target", "Output"
_SHUFFLES = "the shuffles"


def _scheme_options() -> list[click.Option]:
    """``--scheme``, and an option for each setting that a scheme of a question has."""
    from turnout.schemes.scheme import SHUFFLES
    from turnout.schemes.settings import RELATION_SETTING, scheme_kinds, scheme_settings

    words = list(scheme_kinds())
    *shuffles, last = SHUFFLES
    scheme = (
        f"Who takes part when: {', '.join(word for word in words if word not in SHUFFLES)}; or "
        f"whose messages are shuffled: {', '.join(shuffles)} or {last} (local messages that a "
        "shuffler mixes, not data loaders that shuffle)."
    )
    own = {
        word: [each for each in scheme_settings(word) if each is not RELATION_SETTING]
        for word in words
    }
    return [click.Option(["--scheme"], metavar="NAME", help=scheme), *_options_of(own, SHUFFLES)]


def _randomizer_options() -> list[click.Option]:
    """``--randomizer``, and an option for each setting that a randomizer has."""
    from turnout.plans.questions import question_randomizers  # which registers tables, too
    from turnout.schemes.settings import DEFAULT_RANDOMIZER, settings

    kinds = question_randomizers()
    *words, last = kinds
    randomizer = (
        f"What protects one contribution: {', '.join(words)} or {last}; {DEFAULT_RANDOMIZER} by "
        "default. With a shuffle it need not be given: --epsilon0 means pure, with --delta0 "
        "approximate, --noise-multiplier gaussian."
    )
    own = {word: settings(kind) for word, kind in kinds.items()}
    return [click.Option(["--randomizer"], metavar="NAME", help=randomizer), *_options_of(own)]


_TARGET_HINTS = {
    "delta": "; required",
    "relation": "; the shuffles have replace-one alone",
    "tolerance": "; a smaller one takes longer",
}


def _target_options(keys: Sequence[str]) -> list[click.Option]:
    """An option for each of the given settings of a privacy target."""
    from turnout.schemes.settings import RELATION_SETTING, PrivacyTarget, settings

    known = {each.key: each for each in (*settings(PrivacyTarget), RELATION_SETTING)}
    options = []
    for key in keys:
        flag, attributes = _option(
            known[key], _explanation(known[key]) + _TARGET_HINTS.get(key, "")
        )
        options.append(click.Option([flag], **attributes))
    return options


def _options_of(
    own: Mapping[str, Sequence[Parameter]], shuffles: Collection[str] = ()
) -> list[click.Option]:
    """An option for each setting, with the words of those that have it.

    Args:
        own: settings by the words of participations or randomizers.
        shuffles: words that are named together where all of them have a setting.
    """
    # Several may have a setting of one key, each with an explanation of its own.
    explained: dict[str, dict[str, list[str]]] = {}
    settings: dict[str, Parameter] = {}
    for word, each in ((word, each) for word, all_ in own.items() for each in all_):
        if each.option:
            settings[each.key] = each
            explained.setdefault(each.key, {}).setdefault(_explanation(each), []).append(word)
    options: list[click.Option] = []
    for key, texts in explained.items():
        parts = []
        for text, words in texts.items():
            if not set(own) - set(shuffles) - set(words):  # a setting of all participations
                parts.append(text)
                continue
            shuffled = bool(shuffles) and set(shuffles) <= set(words)
            others = [word for word in words if not shuffled or word not in shuffles]
            owners = [*others, "the shuffles"] if shuffled else others
            parts.append(f"{text} ({', '.join(owners)})")
        flag, attributes = _option(settings[key], "; ".join(parts))
        options.append(click.Option([flag], **attributes))
    return options


def option_of(setting: Parameter, hint: str = "") -> Callable[..., Any]:
    """Decorator that adds the option of a setting, its help followed by a hint."""
    flag, attributes = _option(setting, _explanation(setting) + hint)
    return click.option(flag, **attributes)


def _explanation(setting: Parameter) -> str:
    """Explanation of a setting, with the words to choose from and its default."""
    text = setting.words
    if setting.members is not None and not all(word in text for word in setting.members):
        text += f": {', '.join(setting.members)}"
    if setting.default is None:
        return text
    if setting.members is not None:
        return f"{text}; {setting.default} by default"
    return f"{text}, default {setting.default:g}"


def _option(setting: Parameter, text: str) -> tuple[str, dict[str, Any]]:
    """Flag and attributes of the option of a setting with this help."""
    kinds: Mapping[str, dict[str, Any]] = {
        "count": {"type": WHOLE},
        "choice": {"metavar": "NAME"},
        "text": {"metavar": "FILE"},
    }
    attributes = kinds.get(setting.domain, {"type": NUMBER})
    flag = "--" + setting.key.replace("_", "-")
    return flag, {"help": f"{text[:1].upper()}{text[1:]}.", **attributes}


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def all_of(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds options, in the order in which they are written."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def show(found: Result, *, as_json: bool) -> None:
    """Print what a function of `turnout.api` returned, as JSON or as a table."""
    if as_json:
        click.echo(found.to_json())
        return
    from rich.console import Console

    Console().print(found.table())


def picture_path(picture: str | None) -> Path | None:
    """Path of the picture, checked before any data is read, since a run costs privacy."""
    if picture is None:
        return None
    require("plots", what="--picture")
    from turnout.reporting.drawing import check_format

    return check_format(picture)
