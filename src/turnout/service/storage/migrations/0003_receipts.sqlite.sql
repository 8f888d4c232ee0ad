-- What witnesses signed for: never changed, and the newest is what a restart asks for.

CREATE TABLE receipts (
    id INTEGER PRIMARY KEY,
    witness_key BLOB NOT NULL CHECK (length(witness_key) = 32),
    steps INTEGER NOT NULL CHECK (steps >= 0),
    signature BLOB NOT NULL CHECK (length(signature) = 64),
    UNIQUE (witness_key, steps)
) STRICT;

CREATE TRIGGER receipts_no_update BEFORE UPDATE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts: rows are never changed'); END;

CREATE TRIGGER receipts_no_delete BEFORE DELETE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts: rows are never changed'); END;
