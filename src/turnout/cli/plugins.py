"""Command ``turnout plugins``: the installed plug-ins, without running their code."""

from __future__ import annotations

import json

import click

from turnout.cli.options import Command, json_option


@click.command(cls=Command)
@json_option
def plugins(as_json: bool) -> None:
    """List the participations, randomizers and algorithms of installed packages.

    This command does not run the code of the packages. A plug-in is imported when a command or a
    plan names it. Every answer and every charter then states the version of the plug-in and the
    SHA-256 of its code.
    """
    from turnout.core.plugins import installed

    # List the fields of each plug-in with the digest of its code, without importing the code.
    found = [
        {
            "kind": each.kind,
            "name": each.name,
            "package": each.package,
            "version": each.version,
            "module": each.module,
            "digest": each.digest,
        }
        for each in installed()
    ]
    # Print one record for each plug-in, as JSON or as two lines of text.
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo("no plug-ins are installed")
    for each in found:
        where = f"{each['package']} {each['version']}, module {each['module']}"
        click.echo(f"{each['kind']:16}{each['name']:24}{where}\n{'':16}sha256 {each['digest']}")
