"""Coordinator as a network service, to which real devices connect.

`contract` defines the messages, the charter and the ledger of released models. `coordinator` makes
the coordinator's decisions, without network or clock; `storage` keeps its state, `web` serves HTTP,
and `device` is the client side. `graphs` carries models to devices, `dashboard` shows progress, and
`witness` detects that an old copy of the ledger was restored. All these packages use the same
protocol, participation, learning and accounting objects as a simulation.
"""
