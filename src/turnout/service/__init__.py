"""Coordinator as a network service, to which real devices connect.

`contract` defines the messages, the charter and the ledger of released models; `coordinator`
decides (without network or clock), `storage` keeps its state, `web` serves HTTP, and `device` is
the client side. `graphs` carries models to devices, `dashboard` shows progress, `witness` detects a
restored old ledger. All of them drive the same protocol, participation, learning and accounting
objects as a simulation does.
"""
