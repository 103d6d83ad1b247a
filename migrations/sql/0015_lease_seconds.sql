-- How long a lease was given for: workers with other settings see by it whether it is longer than can be.

ALTER TABLE runs ADD COLUMN lease_seconds double precision;
