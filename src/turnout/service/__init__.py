"""The coordinator as a service: real devices check in over a network.

`charter` says what a task is, `engine` decides (no network, no clock), `storage` keeps, `ledger`
chains what was released; `web` speaks HTTP and `device` is the other end. The protocol,
participation, learning and accounting objects are those that a simulation drives.
"""
