-- One task a database. Nothing in it is ever changed; only updates of released steps are deleted.

CREATE TABLE task (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    charter BYTEA NOT NULL,
    signing_key BYTEA NOT NULL CHECK (length(signing_key) = 32),
    parameters BYTEA NOT NULL
);

CREATE TABLE invitations (
    client BIGINT PRIMARY KEY CHECK (client >= 0),
    secret_digest BYTEA NOT NULL CHECK (length(secret_digest) = 32)
);

CREATE TABLE enrolments (
    client BIGINT PRIMARY KEY REFERENCES invitations,
    public_key BYTEA NOT NULL CHECK (length(public_key) = 32)
);

-- Who came is read from here without a look at the updates.
CREATE TABLE participations (
    step BIGINT NOT NULL CHECK (step >= 0),
    client BIGINT NOT NULL REFERENCES enrolments,
    block BIGINT NOT NULL CHECK (block >= 0),
    turn BIGINT NOT NULL CHECK (turn >= 0),
    digest BYTEA CHECK (length(digest) = 32),
    PRIMARY KEY (step, client),
    UNIQUE (client, block, turn)
);

CREATE TABLE answers (
    step BIGINT NOT NULL,
    client BIGINT NOT NULL,
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (step, client),
    FOREIGN KEY (step, client) REFERENCES participations (step, client)
);

CREATE TABLE bodies (
    step BIGINT NOT NULL,
    client BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (step, client),
    FOREIGN KEY (step, client) REFERENCES participations (step, client)
);
-- Updates look like noise: compressing them would be in vain.
ALTER TABLE bodies ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE asked (
    step BIGINT PRIMARY KEY CHECK (step >= 0),
    clients BYTEA NOT NULL CHECK (length(clients) % 8 = 0)
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
    pending BYTEA NOT NULL
);

CREATE TABLE counts (
    step BIGINT PRIMARY KEY REFERENCES releases,
    checked_in BIGINT NOT NULL CHECK (checked_in >= 0),
    served BIGINT NOT NULL CHECK (served >= 0)
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

CREATE FUNCTION turnout_before_release() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.step <= (SELECT max(step) FROM releases) THEN
        RAISE EXCEPTION 'the step is released';
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

CREATE TRIGGER releases_go_on BEFORE INSERT ON releases
FOR EACH ROW EXECUTE FUNCTION turnout_next_release();

CREATE TRIGGER participations_before_release BEFORE INSERT ON participations
FOR EACH ROW EXECUTE FUNCTION turnout_before_release();

CREATE TRIGGER answers_before_release BEFORE INSERT ON answers
FOR EACH ROW EXECUTE FUNCTION turnout_before_release();

CREATE TRIGGER asked_before_release BEFORE INSERT ON asked
FOR EACH ROW EXECUTE FUNCTION turnout_before_release();

CREATE TRIGGER bodies_until_release BEFORE DELETE ON bodies
FOR EACH ROW EXECUTE FUNCTION turnout_until_release();

CREATE TRIGGER bodies_keep BEFORE UPDATE ON bodies
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER bodies_no_truncate BEFORE TRUNCATE ON bodies
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

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

CREATE TRIGGER participations_no_change BEFORE UPDATE OR DELETE ON participations
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER participations_no_truncate BEFORE TRUNCATE ON participations
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER answers_no_change BEFORE UPDATE OR DELETE ON answers
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER answers_no_truncate BEFORE TRUNCATE ON answers
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER asked_no_change BEFORE UPDATE OR DELETE ON asked
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER asked_no_truncate BEFORE TRUNCATE ON asked
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
