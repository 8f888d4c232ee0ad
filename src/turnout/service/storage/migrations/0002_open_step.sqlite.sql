-- Who came, with what, is kept while a step is open; the rows go in its release's transaction.
-- Only tasks that are over come here with rows: everything that these tables hold is deleted.

DROP TABLE bodies;
DROP TABLE answers;
DROP TABLE participations;
DROP TABLE asked;

-- The key that opens the open step's updates. Without it what is left of them is random bytes.
CREATE TABLE step_keys (
    step INTEGER PRIMARY KEY CHECK (step >= 0),
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;

-- Who came in the open step; a few bytes a row, so this is read without a look at the updates.
CREATE TABLE check_ins (
    client INTEGER PRIMARY KEY CHECK (client >= 0),
    step INTEGER NOT NULL CHECK (step >= 0),
    digest BLOB CHECK (length(digest) = 32),
    body INTEGER CHECK ((body IS NULL) = (digest IS NULL))
) STRICT;

-- Encrypted with the step's key, and named by a number that only `check_ins` joins to a client.
CREATE TABLE bodies (
    id INTEGER PRIMARY KEY CHECK (id >= 0),
    step INTEGER NOT NULL CHECK (step >= 0),
    body BLOB NOT NULL
) STRICT;

CREATE TABLE asked (
    step INTEGER PRIMARY KEY CHECK (step >= 0),
    clients BLOB NOT NULL CHECK (length(clients) % 8 = 0)
) STRICT;

-- How often each client came in the released steps of a block that goes on until a later step:
-- two bytes a client, by client, all rewritten at each release.
CREATE TABLE turns (
    shard INTEGER PRIMARY KEY CHECK (shard >= 0),
    until INTEGER NOT NULL CHECK (until >= 0),
    used BLOB NOT NULL CHECK (length(used) = 2048)
) STRICT;

CREATE TRIGGER step_keys_of_the_open_step BEFORE INSERT ON step_keys
WHEN NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is not open: it is released, or comes later'); END;

CREATE TRIGGER check_ins_of_the_open_step BEFORE INSERT ON check_ins
WHEN NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is not open: it is released, or comes later'); END;

CREATE TRIGGER bodies_of_the_open_step BEFORE INSERT ON bodies
WHEN NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is not open: it is released, or comes later'); END;

CREATE TRIGGER asked_of_the_open_step BEFORE INSERT ON asked
WHEN NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is not open: it is released, or comes later'); END;

CREATE TRIGGER step_keys_until_release BEFORE DELETE ON step_keys
WHEN NOT EXISTS (SELECT 1 FROM releases WHERE step = OLD.step)
BEGIN SELECT RAISE(ABORT, 'the step is not released'); END;

CREATE TRIGGER check_ins_until_release BEFORE DELETE ON check_ins
WHEN NOT EXISTS (SELECT 1 FROM releases WHERE step = OLD.step)
BEGIN SELECT RAISE(ABORT, 'the step is not released'); END;

CREATE TRIGGER bodies_until_release BEFORE DELETE ON bodies
WHEN NOT EXISTS (SELECT 1 FROM releases WHERE step = OLD.step)
BEGIN SELECT RAISE(ABORT, 'the step is not released'); END;

CREATE TRIGGER asked_until_release BEFORE DELETE ON asked
WHEN NOT EXISTS (SELECT 1 FROM releases WHERE step = OLD.step)
BEGIN SELECT RAISE(ABORT, 'the step is not released'); END;

CREATE TRIGGER step_keys_no_update BEFORE UPDATE ON step_keys
BEGIN SELECT RAISE(ABORT, 'step_keys: rows are never changed'); END;

CREATE TRIGGER bodies_no_update BEFORE UPDATE ON bodies
BEGIN SELECT RAISE(ABORT, 'bodies: rows are never changed'); END;

CREATE TRIGGER asked_no_update BEFORE UPDATE ON asked
BEGIN SELECT RAISE(ABORT, 'asked: rows are never changed'); END;

-- The one change of a check-in: who came without an update sends it when asked, once.
CREATE TRIGGER check_ins_answer_once BEFORE UPDATE ON check_ins
WHEN OLD.digest IS NOT NULL OR NEW.digest IS NULL
    OR NEW.client <> OLD.client OR NEW.step <> OLD.step
BEGIN SELECT RAISE(ABORT, 'check_ins: rows are never changed'); END;

CREATE TRIGGER turns_of_an_open_block BEFORE INSERT ON turns
WHEN NEW.until <= (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the block is over'); END;

CREATE TRIGGER turns_never_go_back BEFORE UPDATE ON turns
WHEN NEW.shard <> OLD.shard OR NEW.until <> OLD.until OR NEW.used < OLD.used
BEGIN SELECT RAISE(ABORT, 'turns never go back'); END;

CREATE TRIGGER turns_until_the_block_is_over BEFORE DELETE ON turns
WHEN OLD.until > (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the block is not over'); END;
