"""Alembic's entry: runs on the connection, and in the transaction, that `starling.infra.postgres.schema` hands over."""

from alembic import context

from starling.infra.postgres.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
