#!/bin/sh
# The coordinator: invitations for as many devices as the plan has clients, then the service.
# Needs the extras service, train and, for a network of your own, export.
#
#   sh serve.sh 400
set -eu
[ -e tokens.txt ] || turnout enrol "$1" --db task.sqlite --plan plan.toml --out tokens.txt
exec turnout serve plan.toml --db task.sqlite
