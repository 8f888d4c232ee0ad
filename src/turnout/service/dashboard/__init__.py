"""Web pages of a task: a public page and an operator's page.

`pages` renders the pages, `charts` makes the tables of the charts, and `mounting` adds the routes
to the coordinator's application. In the browser htmx refreshes the page and uPlot draws each chart
from its table. No other host is contacted, and without scripts the page still has all numbers.
"""
