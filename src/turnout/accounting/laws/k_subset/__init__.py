"""The price of k different steps out of t: bounds below the block bound, and lower bounds.

With X_1 … X_t the likelihood ratios of the steps (i.i.d. under Q, mean 1), the ratio of what an
adversary sees, against "the client was never there", is

    S = e_k(X_1, …, X_t) / C(t, k),

the mean over all k-subsets of the product of their X's. S is affine in each X, so that larger
X's in convex order give an upper bound. docs/design/subsets.md derives what stands here.

Notation of the whole package: n groups of b steps each, k picks, r the scale of the statistic
A = Σ ln(1 + r·X), K = e^ε, q, m₁ and m₂ the moments of order 0, 1, 2 of S in a cell of A.
"""

from turnout.accounting.laws.k_subset.block import SubsetBlock

__all__ = ["SubsetBlock"]
