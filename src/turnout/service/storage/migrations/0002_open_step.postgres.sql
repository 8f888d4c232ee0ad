-- Who came, with what, is kept while a step is open; the rows go in its release's transaction.
-- Only tasks that are over come here with rows: everything that these tables hold is deleted.

DROP TABLE bodies;
DROP TABLE answers;
DROP TABLE participations;
DROP TABLE asked;

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

DROP FUNCTION turnout_before_release();

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
