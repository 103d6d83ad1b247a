-- Runs whose process ended while it executed them are executed alone in a process: 'due', or 'alone' while they are.

ALTER TABLE runs ADD COLUMN isolation text;
