"""The coordinator without network or clock: tasks, the engine of their steps, releases, export."""
