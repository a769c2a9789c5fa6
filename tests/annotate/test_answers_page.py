"""The answers of a study in a browser without scripts: lists, filters, changes."""

import re

import pytest

from helpers.page_requests import body, claim, form

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def answered(study, visitor):
    """Two people have answered four pairs, A and B alternately; Ben answers A always."""
    study.update(quorum=2)
    numbers = study.ask(4)
    people = {"ann": visitor(study.ann), "ben": visitor(study.invite("ben"))}
    for name, client in people.items():
        for count in range(4):
            held = claim(client, 1)["queries"][0]
            kind = "right" if name == "ann" and count % 2 else "left"
            key = f"{name}-{count}-0123456789"
            client.post("/api/answer", json=body(held["token"], key, kind, response_ms=1500.0))
    return numbers


def rows(page):
    """Numbers of the answers in the list, from the top."""
    table = page.text.partition('<table class="answers">')[2]
    return [int(number) for number in re.findall(r'href="\?[^"]*at=(\d+)#replay"', table)]


def test_answers_are_listed_with_their_clips(study, answered, owner):
    page = owner.get("/admin/answers")
    assert page.status_code == 200
    assert len(rows(page)) == 8
    chosen = study.store.answers.get(study.project.id, rows(page)[0])
    for clip in chosen.sides:
        assert f'src="/media/{clip}.mp4"' in page.text
        assert owner.get(f"/media/{clip}.mp4").status_code == 200
    assert "1.5 s" in page.text
    after = re.search(r'id="after" href="[^"]*at=(\d+)#replay"', page.text)
    assert int(after[1]) == rows(page)[1]


def test_lists_and_people_filter(study, answered, owner):
    ben = study.people["ben"][0].id
    assert len(rows(owner.get(f"/admin/answers?who={ben}"))) == 4
    given = {row.answer.id: row for row in study.store.answers.page(study.project.id).answers}
    differing = rows(owner.get("/admin/answers?show=differing"))
    assert differing
    queries = [given[number].query.id for number in differing]
    assert queries == sorted(queries, reverse=True)
    study.store.reports.announce_reward(
        study.project.id, 1, answers=8, predicted=dict.fromkeys(answered, 0.9)
    )
    page = owner.get("/admin/answers?show=surprising")
    assert all(given[number].answer.preference == 0 for number in rows(page))
    assert "90 %" in page.text


def test_an_admin_withdraws_and_corrects(study, answered, owner):
    first = rows(owner.get("/admin/answers"))[0]
    page = owner.get(f"/admin/answers?at={first}")
    key = re.search(r'name="key" value="([0-9a-f]{32})"', page.text)[1]
    back = "show=all&who="
    sent = form(owner, act="withdraw", key=key, back=back)
    reply = owner.post(f"/admin/answers/{first}", data=sent)
    assert reply.status_code == 303
    assert reply.headers["location"].startswith(f"/admin/answers?{back}&at=")
    page = owner.get(reply.headers["location"])
    assert "Withdrawn by owner" in page.text
    assert len(study.answers()) == 7
    assert owner.post(f"/admin/answers/{first}", data=sent).status_code == 303, "sent twice"
    assert len(study.answers()) == 7
    assert len(study.store.reports.latest_events(study.project.id)) == 1
    second = rows(owner.get("/admin/answers"))[1]
    reply = owner.post(f"/admin/answers/{second}", data=form(owner, act="equal", key=KEY))
    assert reply.status_code == 303
    page = owner.get(reply.headers["location"])
    assert "Equal, as a correction" in page.text
    assert len(study.answers()) == 7
    events = owner.get("/admin").text
    assert "was withdrawn" in events
    assert "was corrected" in events


def test_what_has_changed_meanwhile_is_refused(study, answered, owner):
    first = rows(owner.get("/admin/answers"))[0]
    owner.post(f"/admin/answers/{first}", data=form(owner, act="left", key=KEY))
    late = form(owner, act="withdraw", key=KEY[::-1])
    reply = owner.post(f"/admin/answers/{first}", data=late)
    assert reply.status_code == 409
    assert "has changed" in reply.text
    assert owner.post(f"/admin/answers/{first}", data=late | {"key": KEY}).status_code == 409
    sent = form(owner, act="left", key=KEY)
    assert owner.post("/admin/answers/999", data=sent).status_code == 404
    assert owner.get("/admin/answers?at=999").status_code == 404


def test_malformed_changes_are_refused(answered, owner):
    first = rows(owner.get("/admin/answers"))[0]
    for wrong in (
        {"act": "skip"},
        {"key": "short"},
        {"key": "no key at all...!"},
        {"back": "//evil"},
    ):
        sent = form(owner, **({"act": "left", "key": KEY} | wrong))
        assert owner.post(f"/admin/answers/{first}", data=sent).status_code == 422, wrong


def test_who_may_look_and_change(study, answered, ann, owner, visitor):
    spectator = visitor(study.invite("sue", "spectator"))
    assert ann.get("/admin/answers").status_code == 403
    page = spectator.get("/admin/answers")
    assert page.status_code == 200
    assert "<fieldset>" not in page.text
    first = rows(page)[0]
    for client in (ann, spectator):
        data = form(client, act="withdraw", key=KEY)
        assert client.post(f"/admin/answers/{first}", data=data).status_code == 403
    data = {"act": "withdraw", "key": KEY, "csrf": "no"}
    assert owner.post(f"/admin/answers/{first}", data=data).status_code == 403
    assert len(study.answers()) == 8
