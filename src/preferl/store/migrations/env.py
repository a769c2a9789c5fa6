"""Runs migrations on the connection that `preferl.store.store` hands over."""

from alembic import context

from preferl.store.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite cannot alter tables in place
)
context.run_migrations()
