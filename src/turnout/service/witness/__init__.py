"""A witness: another machine that remembers how far a task's ledger was, and forgets nothing.

`messages` is what goes over the network, `store` what the witness keeps, `app` its HTTP side,
`client` the coordinator's side, `process` what ``turnout witness`` runs.
"""
