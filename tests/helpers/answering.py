"""People who answer all queries of a store at once."""

from preferl.store.store import Store


def answer_all(where, names=("Ann", "Bob"), kind=None):
    """Have people answer all queries of `--store FOLDER`, by the return or all in one way."""
    with Store.open(where[1]) as store:
        project = store.projects.only()
        store.clips.video_ready(project.id, store.clips.without_video(project.id, 1000))
        for name in names:
            person = store.people.invite(project.id, name).annotator.id
            while queries := store.queue.claim(project.id, person, 8).queries:
                for query in queries:
                    left, right = store.clips.segments(
                        project.id, [query.left, query.right]
                    ).returns()
                    answer = kind or ("left" if left > right else "right")
                    key = f"person-{person}-{query.query_id}"
                    store.queue.answer(person, query.token, key, answer, response_ms=900.0)
