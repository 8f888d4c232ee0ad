"""What `turnout serve` goes by: command line over environment over a file over defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from turnout.core.errors import ParameterError
from turnout.plans.refusals import refusal
from turnout.service.charter import Timing
from turnout.service.named_files import tls_files

PREFIX = "TURNOUT_SERVE_"
"""Of environment variables: TURNOUT_SERVE_STEP_SECONDS for ``--step-seconds``."""


_Seconds = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """All settings of the service; each is an option, a variable and a key of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    db: str = Field(description="the database: a file, or postgresql://…")
    host: str = Field("127.0.0.1", description="the address to listen at")
    port: int = Field(8000, ge=0, le=65535, description="the port; 0 for any that is free")
    step_seconds: _Seconds = Field(None, description="how long a step lasts (a new task: 60)")
    check_in_seconds: _Seconds = Field(
        None, description="how long a step takes check-ins (a new task: three quarters of it)"
    )
    answer_seconds: _Seconds = Field(
        None,
        description="how long one client has for its answer (a new task: a sixth of the step)",
    )
    tls_cert: Path | None = Field(None, description="the certificate chain (PEM), for https")
    tls_key: Path | None = Field(None, description="its private key (PEM)")
    forwarded_allow_ips: str | None = Field(
        None, description="addresses of proxies whose X-Forwarded-Proto counts, with commas between"
    )
    operator_password_file: Path | None = Field(
        None, description="a file with the operator's password; without it there is no operator"
    )
    head_file: Path | None = Field(
        None,
        description="where the ledger's head is exported to; another disk than the database's "
        "(in the user's state folder)",
    )
    new_head_file: bool = Field(
        False, description="the head file is missing, and that is known: begin a new one"
    )
    witness: str | None = Field(None, description="address of a `turnout witness`")
    witness_key: str | None = Field(None, description="the witness's public key, hexadecimal")
    witness_token_file: Path | None = Field(
        None, description="a file with the token that the witness asks for"
    )
    witness_ca: Path | None = Field(
        None, description="certificates (PEM) to trust for the witness (the system's)"
    )
    change_witness: bool = Field(
        False, description="go on with another witness than before, or with none"
    )
    wait_for: int = Field(
        0,
        ge=0,
        description="the first step's time begins once so many devices are enrolled, which shows "
        "that they are",
    )
    connections: int = Field(
        8192,
        ge=64,
        le=1_000_000,
        description="how many connections are open at most; half of them from one address",
    )
    exit_when_finished: bool = Field(False, description="end when all steps are over")

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: object, info: ValidationInfo) -> object:
        """A number where one is due, and a flag: true would be read as 1, and 1 as true.

        From the environment a flag comes in words.
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
        """The settings of all sources."""
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
        """How long the steps of a new task last."""
        of_step = Timing.of(self.step_seconds or 60.0)
        return Timing(
            of_step.step_seconds,
            self.check_in_seconds or of_step.check_in_seconds,
            self.answer_seconds or of_step.answer_seconds,
        )

    def require_timing(self, timing: Timing) -> None:
        """Nothing where a task's timing is what was asked for, as far as something was."""
        for name in ("step_seconds", "check_in_seconds", "answer_seconds"):
            asked, frozen = getattr(self, name), getattr(timing, name)
            if asked is not None and asked != frozen:
                expected = f"{frozen:g}, as the task's charter has it for good"
                raise ParameterError(name, asked, expected)

    def require_whole_witness(self) -> None:
        """Nothing where a witness is named as a whole, or not at all."""
        if (self.witness is None) is not (self.witness_key is None):
            missing = "witness" if self.witness is None else "witness_key"
            raise ParameterError(missing, None, "a value: a witness has an address and a key")
        for name in ("witness_token_file", "witness_ca"):
            if self.witness is None and getattr(self, name) is not None:
                raise ParameterError(name, str(getattr(self, name)), "nothing without a witness")

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Certificate and key; None without TLS."""
        return tls_files(self.tls_cert, self.tls_key)


def _setting(variable: str) -> str:
    """A variable's setting; what is not in capitals stays as it is, and so is refused."""
    return variable.lower() if variable == variable.upper() else variable


def _read(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ParameterError("config", str(file), f"a readable file ({error.strerror})") from None
    except ValueError as error:
        raise ParameterError("config", str(file), f"TOML ({error})") from None
