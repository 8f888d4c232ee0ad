"""The coordinator's logic, without network or clock: new tasks, steps, releases, export."""
