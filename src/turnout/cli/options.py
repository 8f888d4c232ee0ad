"""Options that several commands share, and the classes of commands that read them.

`Command` and `Group` refuse an option that is given twice. `QuestionCommand` builds the options of
a scheme and of a privacy target from their settings (`turnout.schemes.settings`), and `option_of`
builds one option from one setting. `WholeNumber`, `Number` and `Word` are types of options. `show`
prints the result of a function of `turnout.api`. All command modules of `turnout.cli` import this
module.
"""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.core.optional import require
from turnout.core.suggestions import nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from turnout.api.price import Result
    from turnout.schemes.parameters import Parameter


class Command(click.Command):
    """Command that accepts each option at most once and reports all missing options together.

    Click itself uses the last of several values without a warning: ``--delta 1e-6 … --delta 1e-3``
    would compute ε at δ = 1e-3. If several options are missing, Click reports only the first one.
    """

    def missing(self, given: Mapping[str, Any]) -> list[str]:
        """Required options that are not given.

        Args:
            given: values of the given options as text, by the names of their parameters.
        """
        found = []
        for param in self.params:
            if isinstance(param, click.Option) and param.required and param.name not in given:
                words = param.type.choices if type(param.type) is click.Choice else ()
                found.append(param.opts[-1] + (f" ({', '.join(words)})" if words else ""))
        return found

    def load_plugins(self, args: Sequence[str]) -> None:
        """Import the files of ``--import``, which may add options, before options are parsed."""
        if any(param.name == "imported" for param in self.params):
            for file in _given("--import", args):
                from turnout.plans.plugins import import_file

                import_file(Path(file))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples of the command, and the page that describes it."""
        from turnout.cli.examples import HELP

        # The first word of the path is the program, by whatever name it was called.
        words, at = [], ctx
        while at.parent is not None:
            words.insert(0, at.info_name or "")
            at = at.parent
        found = HELP.get(" ".join(words))
        if found is None:
            return
        with formatter.section("Examples"):
            for example in found.examples:
                for line in folded(example, formatter.width - formatter.current_indent):
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        formatter.write(f"\nDocumentation: {found.place}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; refuse a flag, or an option of one value, that is given twice."""
        self.load_plugins(args)
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        # A first pass lists every option in order; an unknown option gets a suggestion.
        try:
            values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        except click.NoSuchOption as error:
            known = [flag for each in self.get_params(ctx) for flag in each.opts]
            meant = nearest(error.option_name, known)
            raise click.UsageError(_unknown("option", error.option_name, meant), ctx) from None
        # Only options that collect several values may occur more than once.
        for option, times in Counter(order).items():
            if isinstance(option, click.Option) and not option.multiple and times > 1:
                raise click.UsageError(
                    f"{option.opts[-1]} is given {times} times: expected at most once", ctx
                )
        # A missing option is reported together with all others that are missing.
        given = {each.name for each in order if isinstance(each, click.Option)}
        missing = self.missing({name: values[name] for name in given if name in values})
        message = f"Missing options: {'; '.join(missing)}."
        try:
            rest = super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if len(missing) < 2 or not isinstance(error.param, click.Option):
                raise
            raise click.UsageError(message, ctx) from None
        if len(missing) > 1:
            raise click.UsageError(message, ctx)
        return rest


def _given(option: str, args: Sequence[str]) -> list[str]:
    """Values of an option in unparsed arguments: ``option value`` or ``option=value``."""
    after = [value for word, value in pairwise(args) if word == option]
    return after + [word.partition("=")[2] for word in args if word.startswith(f"{option}=")]


def folded(line: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters that a shell reads as one command line.

    An option stays on one line with its first value.
    """
    glued = re.sub(r"(?<= )(--\S+) (?!-)", "\\1\0", line)
    first, *others = textwrap.wrap(
        glued, width - 2, break_long_words=False, break_on_hyphens=False, subsequent_indent="    "
    )
    lines = [each.replace("\0", " ") for each in (first, *others)]
    return [*(f"{each} \\" for each in lines[:-1]), lines[-1]]


class Group(Command, click.Group):
    """Group of commands that accept each option at most once."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Subcommand that the first argument names.

        An unknown name is an error, with a suggestion where a known name is similar.
        """
        name = args[0]
        known = self.get_command(ctx, name) is not None
        if not known and not ctx.resilient_parsing and not name.startswith("-"):
            meant = nearest(name, self.list_commands(ctx))
            raise click.UsageError(_unknown("command", name, meant), ctx)
        return super().resolve_command(ctx, args)


def _unknown(what: str, name: str, meant: str | None) -> str:
    """Message about an unknown option or command."""
    return f"No such {what} {name!r}." + (f" Did you mean {meant!r}?" if meant else "")


_MOST_DIGITS = 30  # longer whole numbers are refused: 1e999999999 would fill the memory


class WholeNumber(click.ParamType):
    """Type of a whole number in any decimal notation, such as 100000, 100_000 or 1e5."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The whole number that the text denotes; it may be negative."""
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite() or number.adjusted() >= _MOST_DIGITS or number != int(number):
            self.fail(f"{value!r} is not a whole number, such as 100000 or 1e5.", param, ctx)
        return int(number)


class Number(click.ParamType):
    """Type of a number in any notation, or of a fraction of two numbers, such as 256/60000."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number that the text denotes, as float64."""
        above, slash, below = str(value).partition("/")
        try:
            return float(above) / float(below) if slash else float(above)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number, such as 0.5, 1e-6 or 256/60000.", param, ctx)


WHOLE = WholeNumber()
NUMBER = Number()
PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
TEXT_PATH = click.Path()
"""Type of a path, or of the address of a database, whose value is a str."""


class Word(click.ParamType):
    """Type of a word that the command itself checks; shell completion suggests the valid words.

    Args:
        look_up: function that returns the valid words.
    """

    name = "text"

    def __init__(self, look_up: Callable[[], Iterable[str]]) -> None:
        self.look_up = look_up

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The given word, unchanged."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Valid words that begin with the given text."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.look_up() if word.startswith(incomplete)]


class _Data(click.Path):
    """Type of a file or of the name of a built-in data set; shell completion suggests both."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names of data sets that begin with the given text; files if there is no such name."""
        named = Word(lambda: BUILT_IN).shell_complete(ctx, param, incomplete)
        return named or super().shell_complete(ctx, param, incomplete)


DATA = _Data()
BUILT_IN = ("digits", "mnist", "fashion-mnist")
"""Data sets of images that turnout reads by their names."""


def example_plans() -> list[str]:
    """Names of the example plans in the package."""
    folder = resources.files("turnout.plans") / "examples"
    return sorted(Path(file.name).stem for file in folder.iterdir())


EXAMPLE_PLAN = Word(example_plans)


def columns_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of columns of the file DATA that begin with the given text, for shell completion."""
    # While the value of an option is missing, click leaves the arguments unread in `ctx.args`.
    given = [ctx.params.get("data"), *ctx.args]
    file = next((each for each in given if each is not None and Path(each).is_file()), None)
    if file is None:
        return []
    # A Parquet file names its columns in its schema, a CSV file in its first row.
    if Path(file).suffix == ".parquet":
        from pyarrow import parquet

        names = parquet.read_schema(file).names
    else:
        with Path(file).open(newline="", encoding="utf-8-sig", errors="replace") as lines:
            names = next(csv.reader(lines), [])
    return [name for name in names if name.startswith(incomplete)]


class LazyChoice(click.Choice[str]):
    """Choice among words that are computed when they are first needed.

    Args:
        look_up: function that returns the words.
        load: function that is called with an unknown word, and may add this word to the choices.
    """

    def __init__(
        self, look_up: Callable[[], Sequence[str]], load: Callable[[str], object] | None = None
    ) -> None:
        self._look_up, self.case_sensitive = look_up, True
        self._load = load

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, after a check that it is one of the choices; ``load`` may add it first."""
        if self._load is not None and value not in self.choices:
            self._load(str(value))
        return super().convert(value, param, ctx)

    @property
    def choices(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Words to choose from."""
        return tuple(self._look_up())


class SectionedCommand(Command):
    """Command whose help groups the options by topic.

    Options without a topic are listed under "Output".

    Args:
        sections: for each heading in the help, the names of the parameters below it.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Sequence[str]], **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self._sections = sections

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Names of the parameters below each heading of the help."""
        return self._sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section of the help for each topic that has options."""
        # The heading of each parameter, and a list of help records for each heading.
        headings = {
            name: heading for heading, names in self.sections(ctx).items() for name in names
        }
        records: dict[str, list[tuple[str, str]]] = {
            name: [] for name in (*self.sections(ctx), _OTHERS)
        }
        # Collect the records in the order of the parameters, then write the sections.
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and record[1]:  # arguments have no help
                records[headings.get(parameter.name or "", _OTHERS)].append(record)
        for heading, lines in records.items():
            if lines:
                with formatter.section(heading):
                    formatter.write_dl(lines)


_PARTICIPATION, _RANDOMIZER = "Participation of the clients", "Randomizer of a contribution"
_TARGET, _ASKED, _OTHERS = "Privacy target", "Target", "Output"
"""Headings of the options in the help of a command."""


class QuestionCommand(SectionedCommand):
    """Command about a scheme, whose options are built from the settings of schemes.

    The options are built when they are first needed, because building them imports all
    participations and randomizers.

    Args:
        target: keys of those settings of the privacy target that are options of the command.
        sections: for each heading, the names of the parameters that the command itself declares.
    """

    def __init__(
        self,
        *arguments: Any,
        target: Sequence[str] = (),
        sections: Mapping[str, Sequence[str]] | None = None,
        **settings: Any,
    ) -> None:
        own = {_ASKED: ("epsilon", "solve_for"), **(sections or {})}
        super().__init__(*arguments, sections=own, **settings)
        self._target = target
        self._made: dict[str, list[click.Option]] = {}

    def load_plugins(self, args: Sequence[str]) -> None:
        """Import the files of ``--import``, and the plug-in of an unknown scheme or randomizer.

        The imported code may add options, so this method is called before options are built.
        """
        super().load_plugins(args)
        from turnout.plans.questions import question_randomizers  # registers all randomizers
        from turnout.schemes.settings import scheme_kinds

        for option, kind, known in (
            ("--scheme", "participations", scheme_kinds),
            ("--randomizer", "randomizers", question_randomizers),
        ):
            for word in _given(option, args):
                if word not in known():
                    from turnout.core.plugins import load

                    load(kind, word)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters; those of participations, randomizers and the target are first."""
        # Build the options once.
        if not self._made:
            self._made = {_PARTICIPATION: _scheme_options(), _RANDOMIZER: _randomizer_options()}
            if self._target:
                self._made[_TARGET] = _target_options(self._target)
        # An option that the command declares itself replaces the built one of the same name.
        own = super().get_params(ctx)
        taken = {each.name for each in own}
        made = [each for options in self._made.values() for each in options]
        return [*(each for each in made if each.name not in taken), *own]

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Names of the parameters below each heading of the help."""
        made = {heading: [each.name or "" for each in all_] for heading, all_ in self._made.items()}
        return {**self._sections, **made}


def _scheme_options() -> list[click.Option]:
    """Option ``--scheme``, and one option for each setting of a scheme in a question."""
    from turnout.schemes.scheme import SHUFFLES
    from turnout.schemes.settings import RELATION_SETTING, scheme_kinds, scheme_settings

    # The help of --scheme lists participations and shuffles separately.
    words = list(scheme_kinds())
    *shuffles, last = SHUFFLES
    scheme = (
        "Participation of the clients: "
        f"{', '.join(word for word in words if word not in SHUFFLES)}. The schemes "
        f"{', '.join(shuffles)} and {last} are for randomized messages that a shuffler mixes. A "
        "data loader that shuffles records is none of these schemes: use --sampler of account and "
        "calibrate."
    )
    # The relation is an option of the privacy target.
    own = {
        word: [each for each in scheme_settings(word) if each is not RELATION_SETTING]
        for word in words
    }
    named = click.Option(["--scheme"], type=Word(scheme_kinds), metavar="NAME", help=scheme)
    return [named, *_options_of("--scheme", own, SHUFFLES)]


def _randomizer_options() -> list[click.Option]:
    """Option ``--randomizer``, and one option for each setting of a randomizer."""
    from turnout.plans.questions import question_randomizers  # registers the randomizer "table"
    from turnout.schemes.settings import DEFAULT_RANDOMIZER, settings

    kinds = question_randomizers()
    *words, last = kinds
    randomizer = (
        f"Randomizer of one contribution: {', '.join(words)} or {last}. The default is "
        f"{DEFAULT_RANDOMIZER}. With a shuffle scheme the default is gaussian if "
        "--noise-multiplier is given, approximate if --epsilon0 and --delta0 are given, and pure "
        "if only --epsilon0 is given."
    )
    own = {word: settings(kind) for word, kind in kinds.items()}
    named = click.Option(
        ["--randomizer"], type=Word(lambda: kinds), metavar="NAME", help=randomizer
    )
    return [named, *_options_of("--randomizer", own)]


_TARGET_HINTS = {
    "delta": "; required",
    "relation": "; a shuffle scheme allows only replace-one, so --relation is then optional",
    "tolerance": "; a smaller tolerance takes longer to compute",
}
"""Text that the help of an option of the privacy target adds to the setting's explanation."""


def _target_options(keys: Sequence[str]) -> list[click.Option]:
    """One option for each of the settings of a privacy target with the given keys."""
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
    chosen_by: str, own: Mapping[str, Sequence[Parameter]], shuffles: Collection[str] = ()
) -> list[click.Option]:
    """One option for each setting; its help names the schemes or randomizers that have it.

    Args:
        chosen_by: option that selects one of the schemes or randomizers.
        own: settings of each scheme or randomizer, by the value of ``chosen_by`` that selects it.
        shuffles: words to which the help refers together, as "all shuffle schemes", if all of them
            have the setting.
    """
    # Collect the settings by key. Owners of the same key may explain it differently.
    explained: dict[str, dict[str, list[str]]] = {}
    settings: dict[str, Parameter] = {}
    for word, each in ((word, each) for word, all_ in own.items() for each in all_):
        if each.option:
            settings[each.key] = each
            explained.setdefault(each.key, {}).setdefault(_explanation(each), []).append(word)
    # The help of an option joins the explanations of its key, each with its owners in brackets.
    options: list[click.Option] = []
    for key, texts in explained.items():
        parts = []
        for text, words in texts.items():
            # All participations have the setting: no owner is named.
            if not set(own) - set(shuffles) - set(words):
                parts.append(text)
                continue
            shuffled = bool(shuffles) and set(shuffles) <= set(words)
            others = [word for word in words if not shuffled or word not in shuffles]
            owners = [*others, "all shuffle schemes"] if shuffled else others
            named = f"{chosen_by} {', '.join(owners)}" if others else owners[0]
            parts.append(f"{text} ({named})")
        flag, attributes = _option(settings[key], "; ".join(parts))
        options.append(click.Option([flag], **attributes))
    return options


def option_of(setting: Parameter, hint: str = "") -> Callable[..., Any]:
    """Decorator that adds the option of a setting; its help ends with a hint."""
    flag, attributes = _option(setting, _explanation(setting) + hint)
    return click.option(flag, **attributes)


def _explanation(setting: Parameter) -> str:
    """Explanation of a setting, followed by the words to choose from and by the default."""
    text = setting.words
    if setting.members is not None and not all(word in text for word in setting.members):
        text += f": {', '.join(setting.members)}"
    if setting.default is None:
        return text
    if setting.members is not None:
        return f"{text}; {setting.default} by default"
    return f"{text}, default {setting.default:g}"


def _option(setting: Parameter, text: str) -> tuple[str, dict[str, Any]]:
    """Flag of a setting's option, and the option's attributes with the given help text."""
    kinds: Mapping[str, dict[str, Any]] = {
        "count": {"type": WHOLE},
        "choice": {"type": Word(lambda: setting.members or ()), "metavar": "NAME"},
        "text": {"type": TEXT_PATH, "metavar": "FILE"},
    }
    attributes = kinds.get(setting.domain, {"type": NUMBER})
    flag = "--" + setting.key.replace("_", "-")
    return flag, {"help": f"{text[:1].upper()}{text[1:]}.", **attributes}


import_option = click.option(
    "--import",
    "imported",
    type=FILE,
    multiple=True,
    expose_value=False,
    help="Python file that registers a custom participation, randomizer or algorithm; the code in "
    "the file is run.",
)
"""Option ``--import``; `Command.load_plugins` imports its files."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def all_of(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds all given options, in the given order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def show(found: Result, *, as_json: bool) -> None:
    """Print a result of `turnout.api` on stdout, as JSON or as a table."""
    if as_json:
        click.echo(found.to_json())
        return
    from rich.console import Console

    Console().print(found.table())


def next_step(text: str) -> None:
    """Print what to do next on stderr, only if it is a terminal, so that logs do not change."""
    if sys.stderr.isatty():
        click.echo(f"next: {text}", err=True)


def picture_path(picture: str | None) -> Path | None:
    """Path of a picture, after a check of its format; None if no picture is requested.

    Commands call this function before they read data: once an estimate has spent ε, it must not
    fail.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
        ParameterError: the file has a format other than .svg, .png or .pdf.
    """
    if picture is None:
        return None
    require("plots", what="--picture")
    from turnout.reporting.drawing import check_format

    return check_format(picture)
