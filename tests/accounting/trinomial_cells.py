"""A pair that covers an interval of trinomial pairs, for searches over total variation."""

from turnout.accounting.shuffling.blanket_pairs import BlanketPair, trinomial_pair


def trinomial_cell(local_epsilon: float, least: float, most: float) -> BlanketPair:
    """A pair that is worth at least as much as every `trinomial_pair` with α₁ ≤ α ≤ α₂.

    With fewer blanket messages the others hide less (data processing). A victim at α is one at α₂
    with chance α/α₂ and neutral else, in both worlds, so the pair at α mixes one that is worth
    nothing with the one at α₂ (convexity).
    """
    widest = trinomial_pair(local_epsilon, most)
    return BlanketPair(widest.high, widest.low, min(least, widest.low), widest.neutral_share)
