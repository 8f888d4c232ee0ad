"""Storage of the coordinator's durable state: one interface to SQLite and Postgres."""
