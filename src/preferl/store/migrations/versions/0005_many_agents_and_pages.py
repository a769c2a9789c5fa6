"""Agents that take turns, and limits that several servers of one page count together."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """To this revision; queries that are pending keep their order, and come first."""
    op.add_column("query", sa.Column("agent", sa.String()))
    op.add_column("query", sa.Column("turn", sa.Integer(), nullable=False, server_default="0"))
    for name, sqlite, postgresql in (
        ("ix_query_open", "needed > 0", "needed > 0"),
        ("ix_query_undrawn", "ready IS 0", "ready IS false"),
    ):
        op.drop_index(name, "query")
        op.create_index(
            name,
            "query",
            ["project_id", sa.text("priority DESC"), "turn", "id"],
            sqlite_where=sa.text(f"{sqlite} AND cancelled_at IS NULL"),
            postgresql_where=sa.text(f"{postgresql} AND cancelled_at IS NULL"),
        )
    for columns in (("priority", "turn"), ("agent", "priority", "turn")):
        name = "_".join(("ix_query_project_id", *columns))
        op.create_index(name, "query", ["project_id", *columns])
    op.create_table(
        "allowance",
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("left", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("what", "who"),
    )
