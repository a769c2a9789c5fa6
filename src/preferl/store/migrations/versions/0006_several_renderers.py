"""Clips that a program is drawing, so that others draw the next ones."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """To this revision; nobody is drawing a clip."""
    op.add_column("clip", sa.Column("drawing_until", sa.Double()))
