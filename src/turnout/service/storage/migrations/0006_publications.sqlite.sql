-- How many releases were published: what comes after them is read by the coordinator alone.

CREATE TABLE publications (
    steps INTEGER PRIMARY KEY CHECK (steps >= 0)
) STRICT;

-- A step is closed after the one before was published; of the last one, the log has a line.
INSERT INTO publications (steps)
SELECT count(*) - CASE
    WHEN EXISTS (
        SELECT 1 FROM events
        WHERE text = 'step ' || (SELECT max(step) FROM releases) || ' is published'
    ) THEN 0
    ELSE 1
END
FROM releases
HAVING count(*) > 0;

CREATE TRIGGER publications_of_releases BEFORE INSERT ON publications
WHEN NEW.steps > (SELECT coalesce(max(step) + 1, 0) FROM releases)
BEGIN SELECT RAISE(ABORT, 'nothing is published that is not released'); END;

CREATE TRIGGER publications_no_update BEFORE UPDATE ON publications
BEGIN SELECT RAISE(ABORT, 'publications: rows are never changed'); END;

CREATE TRIGGER publications_no_delete BEFORE DELETE ON publications
BEGIN SELECT RAISE(ABORT, 'publications: rows are never changed'); END;
