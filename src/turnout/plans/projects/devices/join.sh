#!/bin/sh
# One device, with its invitation in TURNOUT_TOKEN, where other users of the machine cannot see it.
# Needs the extras data, device and train, or data and device-graph for a network of your own.
#
#   TURNOUT_TOKEN=turnout1.… sh join.sh https://coordinator.example mine.csv
set -eu
exec turnout join "$1" --data "$2" --state device.state
