"""`explain`: what the ε of a scheme means for one client, as a `turnout.api.price.Price`."""

from __future__ import annotations

from dataclasses import replace

from turnout.api.price import Price, price
from turnout.core.errors import ParameterError
from turnout.schemes import Scheme


def explain(
    scheme: Scheme | Price, *, delta: float | None = None, prior: float | None = None
) -> Price:
    """Guarantee of a scheme and its meaning for one client: how well the best attacker can do.

    Args:
        scheme: the scheme, or its `Price`.
        delta: δ, strictly between 0 and 1; only with a scheme, since a price has its own.
        prior: probability that an attacker assigns beforehand to the client taking part, strictly
            between 0 and 1; the answer covers it in addition to one half.

    Returns:
        The price; its ``explanation`` has the numbers, its table the sentences.

    Raises:
        ParameterError: a value outside its domain.
        UnsupportedError: no sound analysis is known, or windows differ between clients.
        NumericalError: nothing can be certified.
    """
    from turnout.accounting.meaning.explanation import explanation_of

    if isinstance(scheme, Price):
        if delta is not None:
            raise ParameterError("delta", delta, "no value, since the price has a δ")
        found = scheme
    else:
        if delta is None:
            raise ParameterError("delta", delta, "a number strictly between 0 and 1")
        found = price(scheme, delta=delta)
    return replace(found, explanation=explanation_of(found.scheme, found.guarantee, prior))
