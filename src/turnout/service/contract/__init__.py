"""The contract of coordinator, device and verifier: messages, charter, computation, ledger."""
