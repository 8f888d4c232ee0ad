"""Command ``turnout plugins``: the installed plug-ins, without running their code."""

from __future__ import annotations

import json

import click

from turnout.cli.options import Command, json_option


@click.command(cls=Command)
@json_option
def plugins(as_json: bool) -> None:
    """List the participations, randomizers and algorithms of installed packages.

    No code of them is run. A command or a plan imports a plug-in when it names it; every answer and
    every charter then states the plug-in with its version and the SHA-256 of its code.
    """
    from turnout.core.plugins import installed

    # The fields of each plug-in, with its digest.
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
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo("no plug-ins are installed")
    for each in found:
        where = f"{each['package']} {each['version']}, module {each['module']}"
        click.echo(f"{each['kind']:16}{each['name']:24}{where}\n{'':16}sha256 {each['digest']}")
