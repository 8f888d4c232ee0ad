"""The protocol: messages, state tables, coordinator and clients. No I/O, no clock.

The same objects run in a simulation and behind a network: the program that drives the objects
transports the messages and supplies the randomness.
"""
