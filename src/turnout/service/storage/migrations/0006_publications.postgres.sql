-- How many releases were published: what comes after them is read by the coordinator alone.

CREATE TABLE publications (
    steps BIGINT PRIMARY KEY CHECK (steps >= 0)
);

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

CREATE FUNCTION turnout_only_releases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.steps > (SELECT coalesce(max(step) + 1, 0) FROM releases) THEN
        RAISE EXCEPTION 'nothing is published that is not released';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER publications_of_releases BEFORE INSERT ON publications
FOR EACH ROW EXECUTE FUNCTION turnout_only_releases();

CREATE TRIGGER publications_no_change BEFORE UPDATE OR DELETE ON publications
FOR EACH ROW EXECUTE FUNCTION turnout_refuse();

CREATE TRIGGER publications_no_truncate BEFORE TRUNCATE ON publications
FOR EACH STATEMENT EXECUTE FUNCTION turnout_refuse();
