"""A witness: another machine that signs and keeps every ledger head of a task.

A coordinator that was restored from an old copy cannot get a signature for a second ledger head at
the same number of releases. `messages` defines the messages, `app` has the witness's database, HTTP
side and process (``turnout witness``), and `client` is the coordinator's side.
"""
