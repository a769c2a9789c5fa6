"""What the newest reward predicts of each query that was answered."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """To this revision; the next reward version brings predictions."""
    op.create_table(
        "prediction",
        sa.Column("query_id", sa.Integer(), sa.ForeignKey("query.id"), primary_key=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("preference", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "preference IS NULL OR (preference >= 0 AND preference <= 1)", name="preference"
        ),
    )
