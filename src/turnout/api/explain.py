"""`explain`: the meaning of a scheme's ε for one client, as a `turnout.api.price.Price`."""

from __future__ import annotations

from dataclasses import replace

from turnout.api.price import Price, price
from turnout.core.errors import ParameterError
from turnout.schemes import Scheme


def explain(
    scheme: Scheme | Price, *, delta: float | None = None, prior: float | None = None
) -> Price:
    """Guarantee of a scheme, with the error rates of the best attack on one client.

    Args:
        scheme: a `Scheme`, or its `Price`.
        delta: δ, strictly between 0 and 1; required with a scheme, None with a price.
        prior: an attacker's probability, before the release, that the client takes part; strictly
            between 0 and 1. The table always explains ε for the probability 1/2, and for
            ``prior`` too if it is given.

    Returns:
        The price. Its ``explanation`` has the least error rates of an attacker, and its table
        explains these rates in sentences. The rates follow from the upper bound on ε, so no
        attacker has lower ones.

    Raises:
        ParameterError: a value is outside its domain.
        UnsupportedError: no sound analysis is known, or clients have different windows.
        NumericalError: no bound can be certified.
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
