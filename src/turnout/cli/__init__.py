"""Command line: each command parses options, calls `turnout.api` and prints the answer.

``main`` lists the commands and maps errors to exit codes. No command computes anything itself.
"""
