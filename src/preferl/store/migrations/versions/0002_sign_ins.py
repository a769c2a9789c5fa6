"""Sign-ins, which end on the server; links that expire or open a few times only."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision; everybody opens their link once more."""
    op.add_column("annotator", sa.Column("link_expires_at", sa.Double(), nullable=True))
    op.add_column("annotator", sa.Column("link_uses", sa.Integer(), nullable=True))
    op.create_table(
        "sign_in",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("annotator_id", sa.Integer(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["annotator.id"], name=op.f("fk_sign_in_annotator_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_in")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_sign_in_token_hash")),
    )
    op.create_index("ix_sign_in_annotator_id", "sign_in", ["annotator_id"])


def downgrade() -> None:
    """Stores are only ever upgraded, after a copy was kept."""
    raise NotImplementedError
