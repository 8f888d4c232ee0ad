#!/bin/sh
# The coordinator: an invitation for each client of the plan, in tokens.txt, then the service.
# Needs the extras service, train and data and, for a network of your own, export. Options of
# `turnout serve` may follow; a trial with `turnout fleet` waits for the devices with --wait-for.
#
#   sh serve.sh
set -eu
[ -e tokens.txt ] || turnout enrol --db task.sqlite --plan plan.toml --out tokens.txt
exec turnout serve plan.toml --db task.sqlite "$@"
