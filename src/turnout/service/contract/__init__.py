"""Data that coordinator, device and verifier share: messages, charter, computation, ledger."""
