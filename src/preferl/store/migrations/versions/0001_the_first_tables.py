"""The first tables: projects, clips, people, queries, leases, answers and what services say."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "project",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("question", sa.String(), nullable=False),
        sa.Column("instructions", sa.String(), nullable=False),
        sa.Column("fps", sa.Integer(), nullable=False),
        sa.Column("quorum", sa.Integer(), nullable=False),
        sa.Column("repeat_share", sa.Double(), nullable=False),
        sa.Column("swap_share", sa.Double(), nullable=False),
        sa.Column("known_share", sa.Double(), nullable=False),
        sa.Column("qualification", sa.Integer(), nullable=False),
        sa.Column("pass_share", sa.Double(), nullable=False),
        sa.Column("strength", sa.Boolean(), nullable=False),
        sa.Column("lease_seconds", sa.Double(), nullable=False),
        sa.Column("budget", sa.Integer(), nullable=True),
        sa.Column("frames", sa.JSON(), nullable=True),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("slug", name=op.f("uq_project_slug")),
    )
    op.create_table(
        "annotator",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("qualified_at", sa.Double(), nullable=True),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "role IN ('annotator', 'admin', 'spectator')", name=op.f("ck_annotator_role")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_annotator_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotator")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_annotator_project_id_name")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_annotator_secret_hash")),
    )
    op.create_table(
        "clip",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("shard", sa.String(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("video", sa.String(), nullable=False),
        sa.Column("video_error", sa.String(), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("kind IN ('segment', 'episode')", name=op.f("ck_clip_kind")),
        sa.CheckConstraint("video IN ('none', 'ready', 'failed')", name=op.f("ck_clip_video")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_clip_project_id")),
        sa.PrimaryKeyConstraint("project_id", "id", name=op.f("pk_clip")),
    )
    with op.batch_alter_table("clip", schema=None) as batch_op:
        batch_op.create_index(
            "ix_clip_project_id_kind_created_at", ["project_id", "kind", "created_at"], unique=False
        )

    op.create_table(
        "reward_version",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("accuracy", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("published_at", sa.Double(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_reward_version_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "version", name=op.f("pk_reward_version")),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("annotator_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["annotator.id"], name=op.f("fk_event_annotator_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_event_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.create_index("ix_event_project_id_id", ["project_id", "id"], unique=False)

    op.create_table(
        "query",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("first_clip", sa.String(), nullable=False),
        sa.Column("second_clip", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("priority", sa.Double(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("model_version", sa.Integer(), nullable=True),
        sa.Column("known", sa.Double(), nullable=True),
        sa.Column("repeat_of", sa.Integer(), nullable=True),
        sa.Column("for_annotator", sa.Integer(), nullable=True),
        sa.Column("swapped", sa.Boolean(), nullable=True),
        sa.Column("quorum", sa.Integer(), nullable=False),
        sa.Column("needed", sa.Integer(), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("cancelled_at", sa.Double(), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.CheckConstraint(
            "purpose IN ('ask', 'known', 'repeat', 'example')", name=op.f("ck_query_purpose")
        ),
        sa.CheckConstraint(
            "known IS NULL OR (known >= 0 AND known <= 1)", name=op.f("ck_query_known")
        ),
        sa.ForeignKeyConstraint(
            ["for_annotator"], ["annotator.id"], name=op.f("fk_query_for_annotator")
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "first_clip"],
            ["clip.project_id", "clip.id"],
            name=op.f("fk_query_project_id_first_clip"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "second_clip"],
            ["clip.project_id", "clip.id"],
            name=op.f("fk_query_project_id_second_clip"),
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_query_project_id")),
        sa.ForeignKeyConstraint(["repeat_of"], ["query.id"], name=op.f("fk_query_repeat_of")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_query")),
    )
    with op.batch_alter_table("query", schema=None) as batch_op:
        batch_op.create_index("ix_query_for_annotator", ["for_annotator"], unique=False)
        batch_op.create_index(
            "ix_query_project_id_first_clip", ["project_id", "first_clip"], unique=False
        )
        batch_op.create_index(
            "ix_query_project_id_purpose", ["project_id", "purpose"], unique=False
        )
        batch_op.create_index(
            "ix_query_project_id_second_clip", ["project_id", "second_clip"], unique=False
        )

    op.create_table(
        "answer",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("query_id", sa.Integer(), nullable=False),
        sa.Column("annotator_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("preference", sa.Double(), nullable=True),
        sa.Column("strength", sa.String(), nullable=True),
        sa.Column("swapped", sa.Boolean(), nullable=False),
        sa.Column("response_ms", sa.Double(), nullable=True),
        sa.Column("granted_at", sa.Double(), nullable=True),
        sa.Column("answered_at", sa.Double(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.CheckConstraint(
            "kind IN ('left', 'right', 'equal', 'cannot_tell', 'skip', 'retract')",
            name=op.f("ck_answer_kind"),
        ),
        sa.CheckConstraint(
            "preference IS NULL OR (preference >= 0 AND preference <= 1)",
            name=op.f("ck_answer_preference"),
        ),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["annotator.id"], name=op.f("fk_answer_annotator_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_answer_project_id")),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name=op.f("fk_answer_query_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answer")),
        sa.UniqueConstraint("key", name=op.f("uq_answer_key")),
    )
    with op.batch_alter_table("answer", schema=None) as batch_op:
        batch_op.create_index(
            "ix_answer_project_id_annotator_id", ["project_id", "annotator_id"], unique=False
        )
        batch_op.create_index(
            "ix_answer_query_id_annotator_id", ["query_id", "annotator_id"], unique=False
        )

    op.create_table(
        "lease",
        sa.Column("query_id", sa.Integer(), nullable=False),
        sa.Column("annotator_id", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("swapped", sa.Boolean(), nullable=False),
        sa.Column("granted_at", sa.Double(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["annotator.id"], name=op.f("fk_lease_annotator_id")
        ),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name=op.f("fk_lease_query_id")),
        sa.PrimaryKeyConstraint("query_id", "annotator_id", name=op.f("pk_lease")),
        sa.UniqueConstraint("token", name=op.f("uq_lease_token")),
    )
    with op.batch_alter_table("lease", schema=None) as batch_op:
        batch_op.create_index("ix_lease_annotator_id", ["annotator_id"], unique=False)

    op.create_table(
        "service",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("beat_at", sa.Double(), nullable=False),
        sa.Column("every", sa.Double(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_service_project_id")),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_service")),
    )
    op.create_index(
        "ix_query_open",
        "query",
        ["project_id", sa.text("priority DESC"), "id"],
        sqlite_where=sa.text("needed > 0 AND cancelled_at IS NULL"),
        postgresql_where=sa.text("needed > 0 AND cancelled_at IS NULL"),
    )
    op.create_index(
        "ix_query_undrawn",
        "query",
        ["project_id", sa.text("priority DESC"), "id"],
        sqlite_where=sa.text("ready IS 0 AND cancelled_at IS NULL"),
        postgresql_where=sa.text("ready IS false AND cancelled_at IS NULL"),
    )
    op.create_index("ix_clip_project_id_video", "clip", ["project_id", "video"])


def downgrade() -> None:
    """There is nothing before: stores are only ever upgraded, after a copy was kept."""
    raise NotImplementedError
