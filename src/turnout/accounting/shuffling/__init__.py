"""Shuffled local messages: bounds on ε of a round of n messages.

`schemes.shuffled_blocks` returns the blocks of a scheme, `messages.one_round` the blocks of one
round of a randomizer. `clones_2021` and `shuffled_gaussian` are functions for users.
docs/design/shuffling.md has the proofs.

Every client sends one message per round, made by a local randomizer; a shuffler hides the senders.
Neighbours differ in one client's record (replace-one). Randomizers that may depend on earlier
messages need an order of speaking that is uniform and unknown to the adversary and to the party
that chooses the randomizers (`turnout.schemes.SpeakingOrder`). Without such an order `schemes`
raises an error for these randomizers; the pairs and blocks themselves do not check the order.
"""

from turnout.accounting.shuffling.approximate import shuffled_gaussian
from turnout.accounting.shuffling.blanket import clones_2021

__all__ = ["clones_2021", "shuffled_gaussian"]
