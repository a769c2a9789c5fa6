"""All tables of the first version.

The naming convention of `preferl.store.schema.Base` names all constraints and most indexes.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TYPES = {
    "int": sa.Integer,
    "float": sa.Double,
    "bool": sa.Boolean,
    "text": sa.String,
    "json": sa.JSON,
}


def columns(listed: str) -> list[sa.Column[Any]]:
    """Columns from `name type, name type`; a type that ends in `?` may be null."""
    pairs = (each.split() for each in listed.split(","))
    return [
        sa.Column(name, TYPES[kind.rstrip("?")](), nullable=kind.endswith("?"))
        for name, kind in pairs
    ]


def refers(column: str, table: str) -> sa.ForeignKeyConstraint:
    """A foreign key to the `id` of a table."""
    return sa.ForeignKeyConstraint([column], [f"{table}.id"])


def upgrade() -> None:
    """To this revision; nothing leads back, since stores are copied before."""
    op.create_table(
        "project",
        *columns(
            "id int, slug text, title text, question text, instructions text, fps int, quorum int,"
            "repeat_share float, swap_share float, known_share float, qualification int,"
            "pass_share float, strength bool, ratings bool, lease_seconds float, budget int?,"
            "frames json?, paused bool, created_at float"
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("slug"),
    )
    op.create_table(
        "annotator",
        *columns(
            "id int, project_id int, name text, role text, secret_hash text, created_at float,"
            "qualified_at float?, disabled_at float?, link_expires_at float?, link_uses int?,"
            "is_model bool"
        ),
        sa.PrimaryKeyConstraint("id"),
        refers("project_id", "project"),
        sa.CheckConstraint("role IN ('annotator', 'admin', 'spectator')", name="role"),
        sa.UniqueConstraint("project_id", "name"),
        sa.UniqueConstraint("secret_hash"),
    )
    op.create_table(
        "sign_in",
        *columns("id int, annotator_id int, token_hash text, began_at float, ended_at float?"),
        sa.PrimaryKeyConstraint("id"),
        refers("annotator_id", "annotator"),
        sa.UniqueConstraint("token_hash"),
        sa.Index(None, "annotator_id"),
    )
    op.create_table(
        "clip",
        *columns(
            "project_id int, id text, kind text, shard text, row int, steps int, video text,"
            "video_error text?, drawing_until float?, detail json?, created_at float"
        ),
        sa.PrimaryKeyConstraint("project_id", "id"),
        refers("project_id", "project"),
        sa.CheckConstraint("kind IN ('segment', 'episode')", name="kind"),
        sa.CheckConstraint("video IN ('none', 'ready', 'failed')", name="video"),
        sa.Index(None, "project_id", "kind", "created_at"),
        sa.Index(None, "project_id", "video"),
    )
    op.create_table(
        "reward_version",
        *columns(
            "project_id int, version int, accuracy float?, low float?, high float?, answers int,"
            "published_at float, detail json?"
        ),
        sa.PrimaryKeyConstraint("project_id", "version"),
        refers("project_id", "project"),
    )
    op.create_table(
        "event",
        *columns("id int, project_id int?, annotator_id int?, kind text, at float, detail json?"),
        sa.PrimaryKeyConstraint("id"),
        refers("annotator_id", "annotator"),
        refers("project_id", "project"),
        sa.Index(None, "project_id", "id"),
    )
    op.create_table(
        "query",
        *columns(
            "id int, project_id int, first_clip text, second_clip text, purpose text,"
            "priority float, agent text?, turn int, score float?, model_version int?, known float?,"
            "repeat_of int?,"
            "for_annotator int?, swapped bool?, quorum int, needed int, ready bool, asked_at float,"
            "cancelled_at float?, detail json?"
        ),
        sa.PrimaryKeyConstraint("id"),
        refers("project_id", "project"),
        refers("repeat_of", "query"),
        refers("for_annotator", "annotator"),
        sa.ForeignKeyConstraint(["project_id", "first_clip"], ["clip.project_id", "clip.id"]),
        sa.ForeignKeyConstraint(["project_id", "second_clip"], ["clip.project_id", "clip.id"]),
        sa.CheckConstraint("purpose IN ('ask', 'known', 'repeat', 'example')", name="purpose"),
        sa.CheckConstraint("known IS NULL OR (known >= 0 AND known <= 1)", name="known"),
        sa.Index(None, "for_annotator"),
        sa.Index(None, "project_id", "first_clip"),
        sa.Index(None, "project_id", "second_clip"),
        sa.Index(None, "project_id", "purpose"),
        sa.Index(None, "project_id", "priority", "turn"),
        sa.Index(None, "project_id", "agent", "priority", "turn"),
    )
    op.create_table(
        "answer",
        *columns(
            "id int, project_id int, query_id int, annotator_id int, key text, kind text,"
            "preference float?, strength text?, swapped bool, response_ms float?,"
            "granted_at float?, answered_at float, detail json?"
        ),
        sa.PrimaryKeyConstraint("id"),
        refers("project_id", "project"),
        refers("query_id", "query"),
        refers("annotator_id", "annotator"),
        sa.CheckConstraint(
            "kind IN ('left', 'right', 'equal', 'cannot_tell', 'skip', 'retract')", name="kind"
        ),
        sa.CheckConstraint(
            "preference IS NULL OR (preference >= 0 AND preference <= 1)", name="preference"
        ),
        sa.UniqueConstraint("key"),
        sa.Index(None, "project_id", "id"),
        sa.Index(None, "project_id", "annotator_id"),
        sa.Index(None, "query_id", "annotator_id"),
    )
    op.create_table(
        "rating",
        *columns(
            "id int, project_id int, clip_id text, annotator_id int, key text, rating int?,"
            "outcome text?, undo bool, rated_at float"
        ),
        sa.PrimaryKeyConstraint("id"),
        refers("project_id", "project"),
        refers("annotator_id", "annotator"),
        sa.ForeignKeyConstraint(["project_id", "clip_id"], ["clip.project_id", "clip.id"]),
        sa.CheckConstraint("rating IS NULL OR (rating >= 1 AND rating <= 5)", name="rating"),
        sa.CheckConstraint("outcome IS NULL OR outcome IN ('success', 'failure')", name="outcome"),
        sa.UniqueConstraint("key"),
        sa.Index(None, "project_id", "clip_id", "annotator_id"),
        sa.Index(None, "annotator_id", "clip_id"),
    )
    op.create_table(
        "lease",
        *columns(
            "query_id int, annotator_id int, token text, swapped bool, granted_at float,"
            "renewed_at float, expires_at float"
        ),
        sa.PrimaryKeyConstraint("query_id", "annotator_id"),
        refers("query_id", "query"),
        refers("annotator_id", "annotator"),
        sa.UniqueConstraint("token"),
        sa.Index(None, "annotator_id"),
    )
    op.create_table(
        "prediction",
        *columns("query_id int, version int, preference float"),
        sa.PrimaryKeyConstraint("query_id"),
        refers("query_id", "query"),
        sa.CheckConstraint(
            "preference IS NULL OR (preference >= 0 AND preference <= 1)", name="preference"
        ),
    )
    op.create_table(
        "allowance",
        *columns("what text, who text, left float, at float"),
        sa.PrimaryKeyConstraint("what", "who"),
    )
    op.create_table(
        "service",
        *columns("project_id int, name text, state text, beat_at float, every float, detail json?"),
        sa.PrimaryKeyConstraint("project_id", "name"),
        refers("project_id", "project"),
    )
    for name, sqlite, postgresql in (
        ("open", "needed > 0", "needed > 0"),
        ("undrawn", "ready IS 0", "ready IS false"),
    ):
        op.create_index(
            f"ix_query_{name}",
            "query",
            ["project_id", sa.text("priority DESC"), "turn", "id"],
            sqlite_where=sa.text(f"{sqlite} AND cancelled_at IS NULL"),
            postgresql_where=sa.text(f"{postgresql} AND cancelled_at IS NULL"),
        )
