"""What coordinator, device and verifier agree on: messages, charter, model computation, ledger."""
