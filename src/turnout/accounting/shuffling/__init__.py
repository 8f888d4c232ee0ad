"""Shuffled local messages: what n of them cost together, by the laws that prove it.

Every client sends one message a round, made by a randomizer of her own; a shuffler hides who sent
what. Neighbours differ in one client's record (replace-one).
"""

from turnout.accounting.shuffling.clones import ClonesBlock, clones_2021, shuffled_gaussian

__all__ = ["ClonesBlock", "clones_2021", "shuffled_gaussian"]
