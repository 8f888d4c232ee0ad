"""Where the coordinator keeps what it must not forget: one interface, SQLite and Postgres."""
