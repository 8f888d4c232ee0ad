-- What the charter names by digest and devices fetch: the graphs that they run, and vectors to them.

CREATE TABLE artefacts (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    content BLOB NOT NULL
) STRICT;

CREATE TRIGGER artefacts_no_update BEFORE UPDATE ON artefacts
BEGIN SELECT RAISE(ABORT, 'artefacts: rows are never changed'); END;

CREATE TRIGGER artefacts_no_delete BEFORE DELETE ON artefacts
BEGIN SELECT RAISE(ABORT, 'artefacts: rows are never changed'); END;
