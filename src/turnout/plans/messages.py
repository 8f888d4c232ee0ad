"""The ``[randomizer]`` table: the message of a client who trusts no coordinator with its update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from turnout.core.errors import ParameterError
from turnout.plans.fields import Count, Positive, Section
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.schemes import NonAdaptiveRandomizer, RepeatedMessages

if TYPE_CHECKING:
    from turnout.randomizers.vectors import VectorRandomizer

LEAST_EPSILON0 = 1e-6
_ANY_DIMENSION = 1 << 20  # the laws below are the same for any


class RandomizerSection(Section):
    """The message that a client sends in the place of its clipped update."""

    norm: Literal["l1", "l2", "linf"] = Field(
        "l2",
        description="in which clip_norm bounds a client's update: 'l2': a seed and a word of its "
        "code (SeededCode); 'linf': a coordinate and its bit (LInfRandomizer); 'l1': a row of the "
        "Hadamard matrix and its bit (L1Randomizer)",
    )
    epsilon0: Positive | None = Field(
        None,
        description="ε₀ of one message on its own; unset: the largest that privacy.epsilon allows",
    )
    bits: Count = Field(
        64, description="most bits of a message; a randomizer that needs more is refused"
    )
    directions: Count = Field(16, description="of 'l2': directions of a seed, a power of two")
    preferred: Count = Field(2, description="of 'l2': how many of them a message prefers")
    messages: Count = Field(
        1,
        description="of a client in each step, each shuffled with the others' of its number; "
        "epsilon0 and bits are of one",
    )
    each: Literal["update", "record"] = Field(
        "update",
        description="what a message is made of: the client's update, or that of one of its records "
        "alone, drawn in each step, another one for each message",
    )
    as_printed: bool = Field(
        False,
        description="of 'linf': the randomizer as the thesis prints it, for comparison",
    )

    @model_validator(mode="after")
    def _fits_the_norm(self) -> Self:
        owners = {"directions": "l2", "preferred": "l2", "as_printed": "linf"}
        for key, norm in owners.items():
            default = type(self).model_fields[key].default
            if norm != self.norm and getattr(self, key) != default:
                expected = f"none with norm = {self.norm!r}"
                raise ParameterError(key, getattr(self, key), expected)
        if self.epsilon0 is not None and not LEAST_EPSILON0 <= self.epsilon0 <= LARGEST_EPSILON:
            expected = f"a number from {LEAST_EPSILON0:g} to {LARGEST_EPSILON:g}"
            raise ParameterError("epsilon0", self.epsilon0, expected)
        return self

    def law(self, epsilon0: float) -> NonAdaptiveRandomizer:
        """The law of a step's messages of a level each, whatever the model's dimension."""
        law = self._made(_ANY_DIMENSION, epsilon0, 1.0).law
        assert isinstance(law, NonAdaptiveRandomizer)
        return law if self.messages == 1 else RepeatedMessages.of(law, self.messages)

    def build(self, dimension: int, epsilon0: float, radius: float) -> VectorRandomizer:
        """The randomizer of updates with so many coordinates.

        Raises:
            ParameterError: its messages are longer than ``bits``, or a code has more directions
                than the model has parameters.
        """
        try:
            made = self._made(dimension, epsilon0, radius)
        except ParameterError as error:
            raise ParameterError(f"randomizer.{error.name}", error.value, error.expected) from None
        if made.message_bits > self.bits:
            expected = f"at least {made.message_bits}, which a message takes here"
            raise ParameterError("randomizer.bits", self.bits, expected)
        return made

    def _made(self, dimension: int, epsilon0: float, radius: float) -> VectorRandomizer:
        from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode

        match self.norm:
            case "l1":
                return L1Randomizer(dimension, epsilon0, radius)
            case "l2":
                shape = {"directions": self.directions, "preferred": self.preferred}
                return SeededCode(dimension, epsilon0, radius, **shape)
            case "linf":
                variant = "as-printed" if self.as_printed else "default"
                return LInfRandomizer(dimension, epsilon0, radius, variant=variant)
