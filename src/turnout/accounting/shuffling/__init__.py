"""Shuffled local messages: what n of them cost together, by the laws that prove it.

Every client sends one message a round, made by a local randomizer; a shuffler hides who sent what.
Neighbours differ in one client's record (replace-one). Randomizers that earlier messages may choose
need an order of speaking that is uniform and unknown to the adversary and to whoever chooses
(`turnout.schemes.SpeakingOrder`): `schemes` refuses them without; pairs and blocks do not know it.
"""

from turnout.accounting.shuffling.approximate import shuffled_gaussian
from turnout.accounting.shuffling.blanket import clones_2021

__all__ = ["clones_2021", "shuffled_gaussian"]
