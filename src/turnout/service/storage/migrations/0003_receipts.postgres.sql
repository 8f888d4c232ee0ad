-- What witnesses signed for: never changed, and the newest is what a restart asks for.

CREATE TABLE receipts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    witness_key BYTEA NOT NULL CHECK (length(witness_key) = 32),
    steps BIGINT NOT NULL CHECK (steps >= 0),
    signature BYTEA NOT NULL CHECK (length(signature) = 64),
    UNIQUE (witness_key, steps)
);

CREATE TRIGGER receipts_no_change BEFORE UPDATE OR DELETE ON receipts
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER receipts_no_truncate BEFORE TRUNCATE ON receipts
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();
