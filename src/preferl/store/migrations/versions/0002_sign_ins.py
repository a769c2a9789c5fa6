"""Sign-ins, which end on the server; links that expire or open a few times only."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """To this revision; everybody opens their link once more."""
    op.add_column("annotator", sa.Column("link_expires_at", sa.Double()))
    op.add_column("annotator", sa.Column("link_uses", sa.Integer()))
    op.create_table(
        "sign_in",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("annotator_id", sa.Integer(), sa.ForeignKey("annotator.id"), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False, unique=True),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Index(None, "annotator_id"),
    )
