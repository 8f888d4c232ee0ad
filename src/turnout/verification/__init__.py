"""Checks an exported ledger from the file alone (docs/ledger.md says what is in the file).

Shares nothing with what wrote the file but `turnout.schemes` and `turnout.core`: reading, chain,
signature and the accountant are written here once more, so that one error is not made twice.
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
