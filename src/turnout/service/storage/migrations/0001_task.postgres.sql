-- One task a database. The ledger and what belongs to it are never changed. Check-ins, updates and
-- the key that encrypts them are kept while a step is open: its release's transaction deletes them.

CREATE TABLE task (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    charter BYTEA NOT NULL,
    signing_key BYTEA NOT NULL CHECK (length(signing_key) = 32),
    parameters BYTEA NOT NULL
);

-- What the charter names by digest and devices fetch: the graphs that they run, and vectors to them.
CREATE TABLE artefacts (
    digest BYTEA PRIMARY KEY CHECK (length(digest) = 32),
    content BYTEA NOT NULL
);

CREATE TABLE invitations (
    client BIGINT PRIMARY KEY CHECK (client >= 0),
    secret_digest BYTEA NOT NULL CHECK (length(secret_digest) = 32)
);

CREATE TABLE enrolments (
    client BIGINT PRIMARY KEY REFERENCES invitations,
    public_key BYTEA NOT NULL CHECK (length(public_key) = 32)
);

-- The key that opens the open step's updates. Without it what is left of them is random bytes.
CREATE TABLE step_keys (
    step BIGINT PRIMARY KEY CHECK (step >= 0),
    key BYTEA NOT NULL CHECK (length(key) = 32)
);

-- Who came in the open step. No foreign key: its check would leave the number of the check-in's
-- transaction in the client's row of `enrolments`, and those numbers rise from step to step.
CREATE TABLE check_ins (
    client BIGINT PRIMARY KEY CHECK (client >= 0),
    step BIGINT NOT NULL CHECK (step >= 0),
    digest BYTEA CHECK (length(digest) = 32),
    body BIGINT CHECK ((body IS NULL) = (digest IS NULL))
);

-- Encrypted with the step's key, and named by a number that only `check_ins` joins to a client.
CREATE TABLE bodies (
    id BIGINT PRIMARY KEY CHECK (id >= 0),
    step BIGINT NOT NULL CHECK (step >= 0),
    body BYTEA NOT NULL
);
-- Compressing what is encrypted would be in vain.
ALTER TABLE bodies ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE asked (
    step BIGINT PRIMARY KEY CHECK (step >= 0),
    clients BYTEA NOT NULL CHECK (length(clients) % 8 = 0)
);

-- How often each client came in the released steps of a block that goes on until a later step:
-- two bytes a client, by client, all rewritten at each release.
CREATE TABLE turns (
    shard BIGINT PRIMARY KEY CHECK (shard >= 0),
    until BIGINT NOT NULL CHECK (until >= 0),
    used BYTEA NOT NULL CHECK (length(used) = 2048)
);

CREATE TABLE releases (
    step BIGINT PRIMARY KEY CHECK (step >= 0),
    task TEXT NOT NULL CHECK (length(task) = 64),
    sum_digest BYTEA NOT NULL CHECK (length(sum_digest) = 32),
    model_digest BYTEA NOT NULL CHECK (length(model_digest) = 32),
    epsilon DOUBLE PRECISION NOT NULL CHECK (epsilon >= 0 AND epsilon < 'Infinity'),
    delta DOUBLE PRECISION NOT NULL CHECK (delta >= 0 AND delta < 1),
    previous BYTEA NOT NULL UNIQUE CHECK (length(previous) = 32),
    digest BYTEA NOT NULL UNIQUE CHECK (length(digest) = 32)
);

CREATE TABLE models (
    step BIGINT PRIMARY KEY REFERENCES releases,
    parameters BYTEA NOT NULL,
    optimizer_state BYTEA NOT NULL,
    mechanism_state BYTEA NOT NULL
);

CREATE TABLE counts (
    step BIGINT PRIMARY KEY REFERENCES releases,
    checked_in BIGINT NOT NULL CHECK (checked_in >= 0),
    served BIGINT NOT NULL CHECK (served >= 0)
);

-- How many releases were published: what comes after them is read by the coordinator alone.
CREATE TABLE publications (
    steps BIGINT PRIMARY KEY CHECK (steps >= 0)
);

-- What witnesses signed for: never changed, and the newest is what a restart asks for.
CREATE TABLE receipts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    witness_key BYTEA NOT NULL CHECK (length(witness_key) = 32),
    steps BIGINT NOT NULL CHECK (steps >= 0),
    signature BYTEA NOT NULL CHECK (length(signature) = 64),
    UNIQUE (witness_key, steps)
);

-- NULL stands for what is not a number: a model may diverge.
CREATE TABLE scores (
    steps BIGINT PRIMARY KEY CHECK (steps >= 0),
    accuracy DOUBLE PRECISION,
    loss DOUBLE PRECISION
);

CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    level TEXT NOT NULL CHECK (level IN ('info', 'warning', 'error')),
    text TEXT NOT NULL
);

CREATE FUNCTION turnout_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '%: rows are never changed', TG_TABLE_NAME; END $$;

CREATE FUNCTION turnout_next_release() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases) THEN
        RAISE EXCEPTION 'the ledger goes on with the next step';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION turnout_until_release() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM releases WHERE step = OLD.step) THEN
        RAISE EXCEPTION 'the step is not released';
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION turnout_open_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases) THEN
        RAISE EXCEPTION 'the step is not open: it is released, or comes later';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION turnout_answer_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.digest IS NOT NULL OR NEW.digest IS NULL
        OR NEW.client <> OLD.client OR NEW.step <> OLD.step THEN
        RAISE EXCEPTION 'check_ins: rows are never changed';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION turnout_open_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.until <= (SELECT coalesce(max(step) + 1, 0) FROM releases) THEN
        RAISE EXCEPTION 'the block is over';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION turnout_turns_rise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.shard <> OLD.shard OR NEW.until <> OLD.until OR NEW.used < OLD.used THEN
        RAISE EXCEPTION 'turns never go back';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION turnout_until_the_block_is_over() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.until > (SELECT coalesce(max(step) + 1, 0) FROM releases) THEN
        RAISE EXCEPTION 'the block is not over';
    END IF;
    RETURN OLD;
END $$;

-- TRUNCATE gives a table a new file; nothing of an open step may go that way.
CREATE FUNCTION turnout_nothing_open() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    left_open BOOLEAN;
BEGIN
    EXECUTE format(
        'SELECT EXISTS (SELECT 1 FROM %I '
        'WHERE step > coalesce((SELECT max(step) FROM releases), -1))',
        TG_TABLE_NAME
    ) INTO left_open;
    IF left_open THEN
        RAISE EXCEPTION 'the step is not released';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION turnout_no_open_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM turns WHERE until > (SELECT coalesce(max(step) + 1, 0) FROM releases)
    ) THEN
        RAISE EXCEPTION 'the block is not over';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION turnout_only_releases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.steps > (SELECT coalesce(max(step) + 1, 0) FROM releases) THEN
        RAISE EXCEPTION 'nothing is published that is not released';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER releases_go_on BEFORE INSERT ON releases
FOR EACH ROW EXECUTE FUNCTION turnout_next_release();

CREATE TRIGGER task_no_change BEFORE UPDATE OR DELETE ON task
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER task_no_truncate BEFORE TRUNCATE ON task
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER invitations_no_change BEFORE UPDATE OR DELETE ON invitations
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER invitations_no_truncate BEFORE TRUNCATE ON invitations
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER enrolments_no_change BEFORE UPDATE OR DELETE ON enrolments
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER enrolments_no_truncate BEFORE TRUNCATE ON enrolments
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER releases_no_change BEFORE UPDATE OR DELETE ON releases
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER releases_no_truncate BEFORE TRUNCATE ON releases
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER models_no_change BEFORE UPDATE OR DELETE ON models
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER models_no_truncate BEFORE TRUNCATE ON models
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER counts_no_change BEFORE UPDATE OR DELETE ON counts
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER counts_no_truncate BEFORE TRUNCATE ON counts
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER scores_no_change BEFORE UPDATE OR DELETE ON scores
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER scores_no_truncate BEFORE TRUNCATE ON scores
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER step_keys_of_the_open_step BEFORE INSERT ON step_keys
FOR EACH ROW EXECUTE FUNCTION turnout_open_step();

CREATE TRIGGER check_ins_of_the_open_step BEFORE INSERT ON check_ins
FOR EACH ROW EXECUTE FUNCTION turnout_open_step();

CREATE TRIGGER bodies_of_the_open_step BEFORE INSERT ON bodies
FOR EACH ROW EXECUTE FUNCTION turnout_open_step();

CREATE TRIGGER asked_of_the_open_step BEFORE INSERT ON asked
FOR EACH ROW EXECUTE FUNCTION turnout_open_step();

CREATE TRIGGER step_keys_until_release BEFORE DELETE ON step_keys
FOR EACH ROW EXECUTE FUNCTION turnout_until_release();

CREATE TRIGGER check_ins_until_release BEFORE DELETE ON check_ins
FOR EACH ROW EXECUTE FUNCTION turnout_until_release();

CREATE TRIGGER bodies_until_release BEFORE DELETE ON bodies
FOR EACH ROW EXECUTE FUNCTION turnout_until_release();

CREATE TRIGGER asked_until_release BEFORE DELETE ON asked
FOR EACH ROW EXECUTE FUNCTION turnout_until_release();

CREATE TRIGGER step_keys_no_update BEFORE UPDATE ON step_keys
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER bodies_no_update BEFORE UPDATE ON bodies
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER asked_no_update BEFORE UPDATE ON asked
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

-- The one change of a check-in: who came without an update sends it when asked, once.
CREATE TRIGGER check_ins_answer_once BEFORE UPDATE ON check_ins
FOR EACH ROW EXECUTE FUNCTION turnout_answer_once();

CREATE TRIGGER step_keys_nothing_open BEFORE TRUNCATE ON step_keys
FOR EACH STATEMENT EXECUTE FUNCTION turnout_nothing_open();

CREATE TRIGGER check_ins_nothing_open BEFORE TRUNCATE ON check_ins
FOR EACH STATEMENT EXECUTE FUNCTION turnout_nothing_open();

CREATE TRIGGER bodies_nothing_open BEFORE TRUNCATE ON bodies
FOR EACH STATEMENT EXECUTE FUNCTION turnout_nothing_open();

CREATE TRIGGER asked_nothing_open BEFORE TRUNCATE ON asked
FOR EACH STATEMENT EXECUTE FUNCTION turnout_nothing_open();

CREATE TRIGGER turns_no_open_block BEFORE TRUNCATE ON turns
FOR EACH STATEMENT EXECUTE FUNCTION turnout_no_open_block();

CREATE TRIGGER turns_of_an_open_block BEFORE INSERT ON turns
FOR EACH ROW EXECUTE FUNCTION turnout_open_block();

CREATE TRIGGER turns_never_go_back BEFORE UPDATE ON turns
FOR EACH ROW EXECUTE FUNCTION turnout_turns_rise();

CREATE TRIGGER turns_until_the_block_is_over BEFORE DELETE ON turns
FOR EACH ROW EXECUTE FUNCTION turnout_until_the_block_is_over();

CREATE TRIGGER receipts_no_change BEFORE UPDATE OR DELETE ON receipts
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER receipts_no_truncate BEFORE TRUNCATE ON receipts
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER artefacts_no_change BEFORE UPDATE OR DELETE ON artefacts
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER artefacts_no_truncate BEFORE TRUNCATE ON artefacts
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER publications_of_releases BEFORE INSERT ON publications
FOR EACH ROW EXECUTE FUNCTION turnout_only_releases();

CREATE TRIGGER publications_no_change BEFORE UPDATE OR DELETE ON publications
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER publications_no_truncate BEFORE TRUNCATE ON publications
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();
