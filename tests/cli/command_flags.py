"""Command lines of tests that replace one option of a common command line."""

from __future__ import annotations


def last_of_each(line: str) -> list[str]:
    """Words of a command line; of an option that occurs twice, only the last value is kept.

    >>> last_of_each("--delta 1e-6 --json --delta 2")
    ['--delta', '2', '--json']
    """
    options: dict[str, list[str]] = {}
    name = ""
    for word in line.split():
        if word.startswith("--"):
            name = word
            options[name] = []
        else:
            options[name].append(word)
    return [word for option, values in options.items() for word in (option, *values)]
