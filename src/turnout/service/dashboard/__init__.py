"""The pages of a task for a browser: one for everybody, one for the operator.

Rendered here, refreshed by htmx, drawn by uPlot from the tables that stand behind the charts.
Nothing is asked of another host, and without scripts all numbers are there.
"""
