"""The protocol: messages, state tables, coordinator and clients. No I/O, no clock.

The same objects run in a simulation and behind a network: whoever drives them carries the
messages and brings the randomness.
"""
