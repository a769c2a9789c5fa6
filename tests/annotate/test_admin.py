"""What those see and change by HTTP who run a study."""

import csv
import gc
import re
import tempfile

from helpers.page_requests import body, claim, form


def test_roles(study, ann, owner, visitor):
    spectator = visitor(study.invite("sue", "spectator"))
    assert ann.get("/admin").status_code == 403
    assert ann.get("/admin/export/csv").status_code == 403
    assert ann.post("/admin/invite", data=form(ann, name="x")).status_code == 403
    assert spectator.get("/").headers["location"] == "/admin"
    page = spectator.get("/admin")
    assert page.status_code == 200
    assert "/admin/invite" not in page.text
    assert spectator.post("/api/claim", json={}).status_code == 403
    assert spectator.post("/admin/project", data=form(spectator)).status_code == 403
    assert spectator.get("/admin/export/csv").status_code == 403
    assert owner.get("/admin").status_code == 200
    assert owner.get("/").status_code == 200


def test_the_admin_invites_and_changes(study, owner, visitor):
    page = owner.post("/admin/invite", data=form(owner, name=" Cleo  P ", role="annotator"))
    link = re.search(r'value="(http://localhost/join/[^"]+)"', page.text)[1]
    cleo = visitor(link.rsplit("/", 1)[1])
    assert cleo.get("/").status_code == 200
    assert link not in owner.get("/admin").text
    people = {person.name: person for person in study.store.people.all(study.project.id)}
    number = people["Cleo P"].id
    owner.post(f"/admin/people/{number}", data=form(owner, act="role", role="spectator"))
    assert cleo.get("/").status_code == 303
    owner.post(f"/admin/people/{number}", data=form(owner, act="end"))
    assert cleo.get("/").status_code == 401
    owner.post(f"/admin/people/{number}", data=form(owner, act="restore"))
    assert cleo.get("/").status_code == 303
    text = owner.get("/admin").text
    for words in ("Cleo P was invited as annotator", "access of Cleo P was ended"):
        assert words in text


def test_models_stand_apart_from_people(study, owner):
    study.store.people.model(study.project.id, "lux")
    text = owner.get("/admin").text
    assert "Model lux: no pairs with people yet" in text
    assert '<span class="role">model' in text
    assert "Role of lux" not in text
    assert "End the access of lux" in text


def test_who_failed_qualification_can_be_let_in(study, owner):
    assert "Let ann answer" not in owner.get("/admin").text
    study.update(qualification=3)
    assert "Let ann answer" in owner.get("/admin").text
    owner.post(f"/admin/people/{study.people['ann'][0].id}", data=form(owner, act="qualify"))
    assert "Let ann answer" not in owner.get("/admin").text


def test_the_same_change_sent_twice_is_one_event(study, owner):
    person = study.people["ann"][0].id
    for count, act in enumerate(("qualify", "role", "end", "restore"), start=1):
        for _ in range(2):
            sent = form(owner, act=act, role="spectator")
            assert owner.post(f"/admin/people/{person}", data=sent).status_code == 303
        assert len(study.store.reports.latest_events(study.project.id)) == count, act


def test_what_an_admin_may_not_do(study, owner, store):
    assert owner.post("/admin/invite", data=form(owner, name="Owner")).status_code == 400
    assert owner.post("/admin/invite", data=form(owner, name=" ")).status_code == 400
    assert owner.post("/admin/invite", data=form(owner, name="x", role="king")).status_code == 422
    me = study.store.people.owner(study.project.id).annotator.id
    assert owner.post(f"/admin/people/{me}", data=form(owner, act="end")).status_code == 400
    other = store.people.invite(store.projects.create("other").id, "zoe").annotator.id
    assert owner.post(f"/admin/people/{other}", data=form(owner, act="end")).status_code == 404
    assert owner.post("/admin/people/999", data=form(owner, act="end")).status_code == 400
    assert owner.post("/admin/invite", data={"name": "x", "csrf": "no"}).status_code == 403


def test_the_admin_changes_what_is_asked(study, owner):
    wanted = {"title": "Doors", "question": "Which?", "instructions": "a\r\nb", "quorum": "3"}
    reply = owner.post("/admin/project", data=form(owner, **wanted, budget="40", paused="true"))
    assert reply.status_code == 303
    project = study.store.projects.get(study.project.id)
    assert (project.title, project.question, project.instructions) == ("Doors", "Which?", "a\nb")
    assert (project.quorum, project.budget, project.paused) == (3, 40, True)
    assert "settings were changed: title, question" in owner.get("/admin").text
    owner.post("/admin/project", data=form(owner, **wanted, budget=""))
    project = study.store.projects.get(study.project.id)
    assert (project.budget, project.paused) == (None, False)
    for wrong in ({"quorum": "0"}, {"budget": "-1"}, {"question": ""}):
        reply = owner.post("/admin/project", data=form(owner, **(wanted | wrong)))
        assert reply.status_code == 422


def test_the_overview_counts(study, owner, ann, visitor):
    study.update(quorum=2)
    study.ask(12)
    ben = visitor(study.invite("ben"))
    for client in (ann, ben):
        for number in range(12):
            held = claim(client, 1)["queries"][0]
            key = f"{number:020d}-{id(client)}"
            client.post("/api/answer", json=body(held["token"], key, response_ms=2000.0))
    text = re.sub(r"\s+", " ", owner.get("/admin").text)
    assert "<dt>Answers</dt><dd>24</dd>" in text
    assert re.search(r"<dd>α -?\d\.\d\d</dd>", text)
    assert "12 pairs" in text
    assert text.count("<td>2.0 s</td>") == 2


def test_answers_are_exported(study, ann, owner):
    study.ask(2)
    ann.post("/api/answer", json=body(claim(ann)["queries"][0]["token"]))
    for kind in ("jsonl", "parquet", "csv"):
        reply = owner.get(f"/admin/export/{kind}")
        assert reply.status_code == 200
        assert f'filename="door-answers.{kind}"' in reply.headers["content-disposition"]
    assert len(reply.text.strip().splitlines()) == 2
    assert owner.get("/admin/export/pickle").status_code == 422


def test_ratings_are_exported_where_people_may_rate(study, ann, owner):
    study.ask(1)
    assert "rows=ratings" not in owner.get("/admin").text
    study.store.projects.update(study.project.id, ratings=True)
    clip = claim(ann)["queries"][0]["left"].split("/")[-1].removesuffix(".mp4")
    ann.post("/api/rate", json={"clip": clip, "key": "a-rating-by-ann-1", "rating": 4})
    assert "/admin/export/csv?rows=ratings" in owner.get("/admin").text
    reply = owner.get("/admin/export/csv?rows=ratings")
    assert 'filename="door-ratings.csv"' in reply.headers["content-disposition"]
    (row,) = csv.DictReader(reply.text.splitlines())
    assert (row["clip"], row["rating"], row["annotator"]) == (clip, "4", "ann")


def test_nothing_is_left_of_an_export(owner, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for part in ("bytes=0-9", "bytes=9-1", "bytes=999999-", "lines=1-2"):
        reply = owner.get("/admin/export/csv", headers={"Range": part})
        assert reply.status_code in (200, 206, 400, 416), part
        gc.collect()
        assert not list(tmp_path.glob("preferl-export-*")), part
