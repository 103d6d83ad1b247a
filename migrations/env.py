"""Entry point of Alembic: uses the connection and transaction of `starling.infra.postgres.schema`."""

from alembic import context

from starling.infra.postgres.tables.access import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
