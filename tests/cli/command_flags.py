"""Command lines of tests that change one option of a common beginning."""

from __future__ import annotations


def last_of_each(line: str) -> list[str]:
    """The words of a command line in which of an option that is written twice the last one stands.

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
