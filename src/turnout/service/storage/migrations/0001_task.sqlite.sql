-- One task a database. The ledger and what belongs to it are never changed. Check-ins, updates and
-- the key that encrypts them are kept while a step is open: its release's transaction deletes them.

CREATE TABLE task (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    charter BLOB NOT NULL,
    signing_key BLOB NOT NULL CHECK (length(signing_key) = 32),
    parameters BLOB NOT NULL
) STRICT;

-- What the charter names by digest and devices fetch: the graphs that they run, and vectors to them.
CREATE TABLE artefacts (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    content BLOB NOT NULL
) STRICT;

CREATE TABLE invitations (
    client INTEGER PRIMARY KEY CHECK (client >= 0),
    secret_digest BLOB NOT NULL CHECK (length(secret_digest) = 32)
) STRICT;

CREATE TABLE enrolments (
    client INTEGER PRIMARY KEY REFERENCES invitations,
    public_key BLOB NOT NULL CHECK (length(public_key) = 32)
) STRICT;

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

CREATE TABLE releases (
    step INTEGER PRIMARY KEY CHECK (step >= 0),
    task TEXT NOT NULL CHECK (length(task) = 64),
    sum_digest BLOB NOT NULL CHECK (length(sum_digest) = 32),
    model_digest BLOB NOT NULL CHECK (length(model_digest) = 32),
    epsilon REAL NOT NULL CHECK (epsilon >= 0 AND epsilon < 9e999),
    delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
    previous BLOB NOT NULL UNIQUE CHECK (length(previous) = 32),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32)
) STRICT;

CREATE TABLE models (
    step INTEGER PRIMARY KEY REFERENCES releases,
    parameters BLOB NOT NULL,
    optimizer_state BLOB NOT NULL,
    mechanism_state BLOB NOT NULL
) STRICT;

CREATE TABLE counts (
    step INTEGER PRIMARY KEY REFERENCES releases,
    checked_in INTEGER NOT NULL CHECK (checked_in >= 0),
    served INTEGER NOT NULL CHECK (served >= 0)
) STRICT;

-- How many releases were published: what comes after them is read by the coordinator alone.
CREATE TABLE publications (
    steps INTEGER PRIMARY KEY CHECK (steps >= 0)
) STRICT;

-- What witnesses signed for: never changed, and the newest is what a restart asks for.
CREATE TABLE receipts (
    id INTEGER PRIMARY KEY,
    witness_key BLOB NOT NULL CHECK (length(witness_key) = 32),
    steps INTEGER NOT NULL CHECK (steps >= 0),
    signature BLOB NOT NULL CHECK (length(signature) = 64),
    UNIQUE (witness_key, steps)
) STRICT;

-- NULL stands for what is not a number: a model may diverge.
CREATE TABLE scores (
    steps INTEGER PRIMARY KEY CHECK (steps >= 0),
    accuracy REAL,
    loss REAL
) STRICT;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    level TEXT NOT NULL CHECK (level IN ('info', 'warning', 'error')),
    text TEXT NOT NULL
) STRICT;

CREATE TRIGGER releases_go_on BEFORE INSERT ON releases
WHEN NEW.step <> (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the ledger goes on with the next step'); END;

CREATE TRIGGER task_no_update BEFORE UPDATE ON task
BEGIN SELECT RAISE(ABORT, 'task: rows are never changed'); END;

CREATE TRIGGER task_no_delete BEFORE DELETE ON task
BEGIN SELECT RAISE(ABORT, 'task: rows are never changed'); END;

CREATE TRIGGER invitations_no_update BEFORE UPDATE ON invitations
BEGIN SELECT RAISE(ABORT, 'invitations: rows are never changed'); END;

CREATE TRIGGER invitations_no_delete BEFORE DELETE ON invitations
BEGIN SELECT RAISE(ABORT, 'invitations: rows are never changed'); END;

CREATE TRIGGER enrolments_no_update BEFORE UPDATE ON enrolments
BEGIN SELECT RAISE(ABORT, 'enrolments: rows are never changed'); END;

CREATE TRIGGER enrolments_no_delete BEFORE DELETE ON enrolments
BEGIN SELECT RAISE(ABORT, 'enrolments: rows are never changed'); END;

CREATE TRIGGER releases_no_update BEFORE UPDATE ON releases
BEGIN SELECT RAISE(ABORT, 'releases: rows are never changed'); END;

CREATE TRIGGER releases_no_delete BEFORE DELETE ON releases
BEGIN SELECT RAISE(ABORT, 'releases: rows are never changed'); END;

CREATE TRIGGER models_no_update BEFORE UPDATE ON models
BEGIN SELECT RAISE(ABORT, 'models: rows are never changed'); END;

CREATE TRIGGER models_no_delete BEFORE DELETE ON models
BEGIN SELECT RAISE(ABORT, 'models: rows are never changed'); END;

CREATE TRIGGER counts_no_update BEFORE UPDATE ON counts
BEGIN SELECT RAISE(ABORT, 'counts: rows are never changed'); END;

CREATE TRIGGER counts_no_delete BEFORE DELETE ON counts
BEGIN SELECT RAISE(ABORT, 'counts: rows are never changed'); END;

CREATE TRIGGER scores_no_update BEFORE UPDATE ON scores
BEGIN SELECT RAISE(ABORT, 'scores: rows are never changed'); END;

CREATE TRIGGER scores_no_delete BEFORE DELETE ON scores
BEGIN SELECT RAISE(ABORT, 'scores: rows are never changed'); END;

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

CREATE TRIGGER receipts_no_update BEFORE UPDATE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts: rows are never changed'); END;

CREATE TRIGGER receipts_no_delete BEFORE DELETE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts: rows are never changed'); END;

CREATE TRIGGER artefacts_no_update BEFORE UPDATE ON artefacts
BEGIN SELECT RAISE(ABORT, 'artefacts: rows are never changed'); END;

CREATE TRIGGER artefacts_no_delete BEFORE DELETE ON artefacts
BEGIN SELECT RAISE(ABORT, 'artefacts: rows are never changed'); END;

CREATE TRIGGER publications_of_releases BEFORE INSERT ON publications
WHEN NEW.steps > (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'nothing is published that is not released'); END;

CREATE TRIGGER publications_no_update BEFORE UPDATE ON publications
BEGIN SELECT RAISE(ABORT, 'publications: rows are never changed'); END;

CREATE TRIGGER publications_no_delete BEFORE DELETE ON publications
BEGIN SELECT RAISE(ABORT, 'publications: rows are never changed'); END;
