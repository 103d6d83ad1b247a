-- Change log for chaos experiments: every relevant change of a row of `runs`, every batch of rows written to a run (each
-- with its transaction and process), and every row deleted by retention. While `chaos.disk` says that it is full, rows are
-- refused as Postgres does then.
CREATE SCHEMA chaos;

CREATE TABLE chaos.changes (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    app text NOT NULL DEFAULT current_setting('application_name'),
    run_id text NOT NULL,
    old_status text, new_status text NOT NULL,
    old_fence bigint NOT NULL, new_fence bigint NOT NULL,
    old_seq bigint NOT NULL, new_seq bigint NOT NULL,
    old_flushes bigint NOT NULL, new_flushes bigint NOT NULL,
    result_changed boolean NOT NULL
);

CREATE TABLE chaos.writes (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    app text NOT NULL DEFAULT current_setting('application_name'),
    what text NOT NULL,
    run_id text NOT NULL,
    first_seq bigint, last_seq bigint
);

CREATE TABLE chaos.gone (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    app text NOT NULL DEFAULT current_setting('application_name'),
    name text NOT NULL,
    run_id text NOT NULL,
    "row" jsonb NOT NULL
);

CREATE FUNCTION chaos.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO chaos.changes (run_id, new_status, old_fence, new_fence, old_seq, new_seq, old_flushes, new_flushes,
                                   result_changed)
        VALUES (NEW.id, NEW.status, 0, NEW.fence, 0, NEW.seq, 0, NEW.flushes, false);
    ELSE
        INSERT INTO chaos.changes (run_id, old_status, new_status, old_fence, new_fence, old_seq, new_seq, old_flushes,
                                   new_flushes, result_changed)
        VALUES (NEW.id, OLD.status, NEW.status, OLD.fence, NEW.fence, OLD.seq, NEW.seq, OLD.flushes, NEW.flushes,
                NEW.result IS DISTINCT FROM OLD.result OR NEW.ended_at IS DISTINCT FROM OLD.ended_at);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER chaos_begun AFTER INSERT ON runs FOR EACH ROW EXECUTE FUNCTION chaos.note_change();
CREATE TRIGGER chaos_changed AFTER UPDATE ON runs FOR EACH ROW WHEN (
    OLD.status <> NEW.status OR OLD.fence <> NEW.fence OR OLD.seq <> NEW.seq OR OLD.flushes <> NEW.flushes
    OR OLD.result IS DISTINCT FROM NEW.result OR OLD.ended_at IS DISTINCT FROM NEW.ended_at
) EXECUTE FUNCTION chaos.note_change();

CREATE FUNCTION chaos.note_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.writes (what, run_id, first_seq, last_seq)
    SELECT 'events', run_id, min(seq), max(seq) FROM fresh GROUP BY run_id;
    RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.writes (what, run_id) SELECT DISTINCT TG_TABLE_NAME, run_id::text FROM fresh
    WHERE run_id IS NOT NULL;
    RETURN NULL;
END $$;

CREATE FUNCTION chaos.note_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.writes (what, run_id) SELECT DISTINCT TG_TABLE_NAME, thread_id FROM fresh;
    RETURN NULL;
END $$;

CREATE TRIGGER chaos_told AFTER INSERT ON events REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_events();
CREATE TRIGGER chaos_stepped AFTER INSERT ON steps REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_rows();
CREATE TRIGGER chaos_journalled AFTER INSERT ON journal REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_rows();
CREATE TRIGGER chaos_entered AFTER INSERT ON ledger REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_rows();
CREATE TRIGGER chaos_pushed AFTER INSERT ON states REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_rows();
CREATE TRIGGER chaos_checkpointed AFTER INSERT ON checkpoints REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_checkpoint();
CREATE TRIGGER chaos_kept AFTER INSERT ON checkpoint_blobs REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_checkpoint();

CREATE FUNCTION chaos.keep_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.gone (name, run_id, "row") SELECT TG_TABLE_NAME, run_id::text, to_jsonb(old_rows) FROM old_rows;
    RETURN NULL;
END $$;

CREATE TRIGGER chaos_gone AFTER DELETE ON events REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.keep_gone();
CREATE TRIGGER chaos_gone AFTER DELETE ON steps REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.keep_gone();
CREATE TRIGGER chaos_gone AFTER DELETE ON ledger REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.keep_gone();
CREATE TRIGGER chaos_gone AFTER DELETE ON interrupts REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.keep_gone();
CREATE TRIGGER chaos_gone AFTER DELETE ON run_artifacts REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.keep_gone();

CREATE TABLE chaos.disk (is_full boolean NOT NULL);
INSERT INTO chaos.disk VALUES (false);

CREATE FUNCTION chaos.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT is_full FROM chaos.disk) THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NULL;
END $$;

DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('CREATE TRIGGER chaos_full BEFORE INSERT OR UPDATE ON %I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION chaos.refuse()', name);
    END LOOP;
END $$;
