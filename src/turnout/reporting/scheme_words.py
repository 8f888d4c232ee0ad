"""A scheme under the names that questions use: its law and its randomizer, with parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from turnout.schemes import (
    EveryStep,
    FixedSize,
    Randomizer,
    RepeatedMessages,
    Scheme,
    SelfSampling,
    TableRandomizer,
    TrustModel,
)
from turnout.schemes.parameters import Domain, parameters
from turnout.schemes.registry import asked_randomizers, law_names

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def law_words(scheme: Scheme) -> dict[str, Any]:
    """The participation law by name with its parameters, and the release rule."""
    law = scheme.participation
    if scheme.trust is TrustModel.SHUFFLED:
        words = _shuffle_words(scheme)
    else:
        names = law_names(type(law))
        words = {"name": names.question or names.plan, **_values(law, named=names.question)}
        if scheme.population is not None:
            words["clients"] = scheme.population
    if scheme.order is not None:
        words["order"] = scheme.order.value
    if scheme.trust is not TrustModel.SHUFFLED:
        words["release"] = scheme.release.value
    return words


def randomizer_words(randomizer: Randomizer) -> dict[str, Any]:
    """The randomizer by name with its parameters."""
    kind = type(randomizer)
    if isinstance(randomizer, RepeatedMessages):
        return {**randomizer_words(randomizer.each), "messages": randomizer.messages}
    if isinstance(randomizer, TableRandomizer):
        return {"name": "table", "outcomes": len(randomizer.present)}
    names = {known: name for name, known in asked_randomizers().items()}
    own = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
    return {"name": names.get(kind, own), **_values(randomizer)}


def _shuffle_words(scheme: Scheme) -> dict[str, Any]:
    law, clients = scheme.participation, scheme.population
    ends = {"clients": clients, "rounds": law.steps}
    if isinstance(law, EveryStep):
        return {"name": "shuffle", **ends}
    if isinstance(law, FixedSize):
        return {"name": "subsampled-shuffle", "sampled": law.size, **ends}
    if isinstance(law, SelfSampling):
        return {"name": "self-sampling-shuffle", "rate": law.rate, **ends}
    return {"name": law_names(type(law)).plan, **_values(law), "clients": clients}


def _values(spec: DataclassInstance, named: object = True) -> dict[str, Any]:
    """The parameters, those alone that questions know if they know the spec by name."""
    return {
        each.key: getattr(spec, each.name)
        if each.domain is Domain.COUNT
        else float(getattr(spec, each.name))
        for each in parameters(type(spec))
        if each.public or not named
    }
