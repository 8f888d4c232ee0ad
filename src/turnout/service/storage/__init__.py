"""Storage of the coordinator's durable state: one interface, SQLite and Postgres."""
