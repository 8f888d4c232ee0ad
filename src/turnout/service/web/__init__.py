"""HTTP side of the coordinator: device API, schedule, operator's pages and metrics."""
