"""The coordinator on the network: device API, schedule, operator's pages, metrics."""
