"""Verification of an exported ledger from the file alone (docs/ledger.md describes the file).

The package shares only `turnout.schemes` and `turnout.core` with the code that wrote the file. Its
reader, the check of the chain and the signature, and the accountant are written independently of
that code, so that they do not repeat its errors.
"""

from turnout.verification.document import (
    Cost,
    LedgerFault,
    VerificationOutcome,
    VerificationVerdict,
)
from turnout.verification.verifying import KnownHead, verify

__all__ = [
    "Cost",
    "KnownHead",
    "LedgerFault",
    "VerificationOutcome",
    "VerificationVerdict",
    "verify",
]
