-- What the charter names by digest and devices fetch: the graphs that they run, and vectors to them.

CREATE TABLE artefacts (
    digest BYTEA PRIMARY KEY CHECK (length(digest) = 32),
    content BYTEA NOT NULL
);

CREATE TRIGGER artefacts_no_change BEFORE UPDATE OR DELETE ON artefacts
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER artefacts_no_truncate BEFORE TRUNCATE ON artefacts
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();
