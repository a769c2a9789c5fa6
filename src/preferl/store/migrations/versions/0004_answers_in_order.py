"""The answers of a project in the order in which they were given, for pages of them."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """To this revision; a page of answers is then read without all others."""
    op.create_index("ix_answer_project_id_id", "answer", ["project_id", "id"])
