"""Settings of `turnout serve`, from the command line, the environment, a file and defaults.

`Settings.gathered` merges these sources: an option overrides a variable, and a variable overrides
the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from turnout.core.errors import ParameterError
from turnout.plans.refusals import refusal
from turnout.service.contract.charter import Timing
from turnout.service.coordinator.new_task import tls_files

PREFIX = "TURNOUT_SERVE_"
"""Prefix of environment variables: TURNOUT_SERVE_STEP_SECONDS for ``--step-seconds``."""


_Seconds = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Settings of the service: command-line options, environment variables, or keys of a file.

    The help of the options, in `turnout.cli.service`, explains the settings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    db: str = Field(repr=False)  # it may have a password
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    step_seconds: _Seconds = None
    check_in_seconds: _Seconds = None
    answer_seconds: _Seconds = None
    compute_seconds: _Seconds = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    forwarded_allow_ips: str | None = None
    operator_password_file: Path | None = None
    head_file: Path | None = None
    new_head_file: bool = False
    witness: str | None = None
    witness_key: str | None = None
    witness_token_file: Path | None = None
    witness_ca: Path | None = None
    change_witness: bool = False
    wait_for: int = Field(0, ge=0)
    connections: int = Field(8192, ge=64, le=1_000_000)
    exit_when_finished: bool = False
    graph: bool = False

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: object, info: ValidationInfo) -> object:
        """Unchanged value of a setting; a Boolean in place of a number is refused, and vice versa.

        Text is accepted for a Boolean, since environment variables are text.
        """
        kind = cls.model_fields[info.field_name or ""].annotation
        if kind is bool and not isinstance(value, bool | str):
            raise ParameterError("value", value, "true or false")
        if kind in (int, float | None) and isinstance(value, bool):
            raise ParameterError("value", value, "a number")
        return value

    @classmethod
    def gathered(
        cls, file: Path | None, environment: Mapping[str, str], given: Mapping[str, Any]
    ) -> Self:
        """Settings merged from the command line, the environment, a file and the defaults.

        Args:
            file: TOML file of settings; None reads no file.
            environment: environment variables.
            given: values of the command line; None for options that were not given.

        Raises:
            ParameterError: a setting is unknown, a value is outside its domain, or the file is
                unreadable.
        """
        named = {
            _setting(name.removeprefix(PREFIX)): value
            for name, value in environment.items()
            if name.startswith(PREFIX) and name != f"{PREFIX}CONFIG"
        }
        on_line = {name: value for name, value in given.items() if value is not None}
        try:
            return cls.model_validate(_read(file) | named | on_line)
        except ValidationError as error:
            raise refusal(error, cls) from None

    @property
    def timing(self) -> Timing:
        """Lengths of the phases of a new task; lengths that are not set follow from the plan."""
        of_step = Timing.of(self.step_seconds or 60.0)
        return Timing(
            of_step.step_seconds,
            self.check_in_seconds or of_step.check_in_seconds,
            self.answer_seconds or of_step.answer_seconds,
            self.compute_seconds,
        )

    def require_timing(self, timing: Timing) -> None:
        """Require that the lengths in the settings equal the lengths of the stored task.

        Raises:
            ParameterError: a given length differs from the charter's.
        """
        for name in ("step_seconds", "check_in_seconds", "answer_seconds", "compute_seconds"):
            given, frozen = getattr(self, name), getattr(timing, name)
            if given is not None and given != frozen:
                expected = f"{frozen:g}, which the task's charter fixes"
                raise ParameterError(name, given, expected)

    def require_whole_witness(self) -> None:
        """Require that any setting of a witness is given only with its address and key.

        Raises:
            ParameterError: only one of address and key is given, or the token file or the
                certificates are given without them.
        """
        if (self.witness is None) is not (self.witness_key is None):
            missing = "witness" if self.witness is None else "witness_key"
            raise ParameterError(missing, None, "a value, since a witness needs address and key")
        for name in ("witness_token_file", "witness_ca"):
            if self.witness is None and getattr(self, name) is not None:
                raise ParameterError(name, str(getattr(self, name)), "no value without a witness")

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Paths of certificate and key; None without TLS."""
        return tls_files(self.tls_cert, self.tls_key)


def _setting(variable: str) -> str:
    """Setting that an environment variable names; a name not in capitals is unchanged."""
    return variable.lower() if variable == variable.upper() else variable


def _read(file: Path | None) -> dict[str, Any]:
    """Settings in a TOML file; empty without a file."""
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise ParameterError("config", str(file), f"a readable file ({error.strerror})") from None
    except ValueError as error:
        raise ParameterError("config", str(file), f"TOML ({error})") from None
