"""Commands and groups that refuse an option that is given twice."""

from __future__ import annotations

from collections import Counter

import click


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
