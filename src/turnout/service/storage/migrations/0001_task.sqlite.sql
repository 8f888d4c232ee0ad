-- One task a database. Nothing in it is ever changed; only updates of released steps are deleted.

CREATE TABLE task (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    charter BLOB NOT NULL,
    signing_key BLOB NOT NULL CHECK (length(signing_key) = 32),
    parameters BLOB NOT NULL
) STRICT;

CREATE TABLE invitations (
    client INTEGER PRIMARY KEY CHECK (client >= 0),
    secret_digest BLOB NOT NULL CHECK (length(secret_digest) = 32)
) STRICT;

CREATE TABLE enrolments (
    client INTEGER PRIMARY KEY REFERENCES invitations,
    public_key BLOB NOT NULL CHECK (length(public_key) = 32)
) STRICT;

-- Clustered by step: who came is read from here without a look at the updates.
CREATE TABLE participations (
    step INTEGER NOT NULL CHECK (step >= 0),
    client INTEGER NOT NULL REFERENCES enrolments,
    block INTEGER NOT NULL CHECK (block >= 0),
    turn INTEGER NOT NULL CHECK (turn >= 0),
    digest BLOB CHECK (length(digest) = 32),
    PRIMARY KEY (step, client),
    UNIQUE (client, block, turn)
) STRICT, WITHOUT ROWID;

CREATE TABLE answers (
    step INTEGER NOT NULL,
    client INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (step, client),
    FOREIGN KEY (step, client) REFERENCES participations (step, client)
) STRICT, WITHOUT ROWID;

-- With a rowid, so that big rows are appended in the order in which they come.
CREATE TABLE bodies (
    step INTEGER NOT NULL,
    client INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (step, client),
    FOREIGN KEY (step, client) REFERENCES participations (step, client)
) STRICT;

CREATE TABLE asked (
    step INTEGER PRIMARY KEY CHECK (step >= 0),
    clients BLOB NOT NULL CHECK (length(clients) % 8 = 0)
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
    pending BLOB NOT NULL
) STRICT;

CREATE TABLE counts (
    step INTEGER PRIMARY KEY REFERENCES releases,
    checked_in INTEGER NOT NULL CHECK (checked_in >= 0),
    served INTEGER NOT NULL CHECK (served >= 0)
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

CREATE TRIGGER participations_before_release BEFORE INSERT ON participations
WHEN NEW.step <= (SELECT max(step) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is released'); END;

CREATE TRIGGER answers_before_release BEFORE INSERT ON answers
WHEN NEW.step <= (SELECT max(step) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is released'); END;

CREATE TRIGGER asked_before_release BEFORE INSERT ON asked
WHEN NEW.step <= (SELECT max(step) FROM releases)
BEGIN SELECT RAISE(ABORT, 'the step is released'); END;

CREATE TRIGGER bodies_until_release BEFORE DELETE ON bodies
WHEN NOT EXISTS (SELECT 1 FROM releases WHERE step = OLD.step)
BEGIN SELECT RAISE(ABORT, 'the step is not released'); END;

CREATE TRIGGER bodies_keep BEFORE UPDATE ON bodies
BEGIN SELECT RAISE(ABORT, 'updates are never changed'); END;

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

CREATE TRIGGER participations_no_update BEFORE UPDATE ON participations
BEGIN SELECT RAISE(ABORT, 'participations: rows are never changed'); END;

CREATE TRIGGER participations_no_delete BEFORE DELETE ON participations
BEGIN SELECT RAISE(ABORT, 'participations: rows are never changed'); END;

CREATE TRIGGER answers_no_update BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'answers: rows are never changed'); END;

CREATE TRIGGER answers_no_delete BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'answers: rows are never changed'); END;

CREATE TRIGGER asked_no_update BEFORE UPDATE ON asked
BEGIN SELECT RAISE(ABORT, 'asked: rows are never changed'); END;

CREATE TRIGGER asked_no_delete BEFORE DELETE ON asked
BEGIN SELECT RAISE(ABORT, 'asked: rows are never changed'); END;

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
