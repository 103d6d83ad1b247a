-- Builds of teams: what a run was asked to build, and what is known of a version that was built and proved.

ALTER TABLE runs ADD COLUMN build jsonb;

CREATE UNIQUE INDEX runs_one_build_per_team ON runs (tenant, (build ->> 'name'))
    WHERE build IS NOT NULL AND ended_at IS NULL;

ALTER TABLE workflows ADD COLUMN goal text;
ALTER TABLE workflows ADD COLUMN built_by uuid;
ALTER TABLE workflows ADD COLUMN built_at_path text;
ALTER TABLE workflows ADD COLUMN proof jsonb;
ALTER TABLE workflows ADD COLUMN proven_state text;

CREATE UNIQUE INDEX workflows_one_build ON workflows (tenant, built_by, built_at_path) WHERE built_by IS NOT NULL;
