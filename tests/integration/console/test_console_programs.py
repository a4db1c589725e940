"""The failure desk's API as programs have it."""

from __future__ import annotations

import json
import urllib.parse
from contextlib import ExitStack
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pydantic import TypeAdapter

from homing.broker.console.api.openapi import document
from homing.broker.console.api.operations import JSON, OPERATIONS
from homing.client import blocking
from tests.amqp_support import get
from tests.console_support import GUEST, Api, Fail, Visitor, basic, can_stream, streamed
from tests.process import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
#: Operations whose answer comes to an end.
AT_ONCE = [each for each in OPERATIONS if not each.streams]


def test_programs_find_why_it_died_and_send_it_back(fail: Fail, ch: BlockingChannel, api: Api) -> None:
    fail("tickets", ["CHF", "CHF", "CHF"], {"region": "ch"})
    (sentence,) = [each for each in api.get("/overview")["findings"] if each["sentence"].startswith("tickets: ")]
    assert (sentence["level"], "KeyError: 'CHF'" in sentence["sentence"]) == ("failing", True)
    fail("tickets-late", ["CHF"])
    fullest, rest = api.get("/dead-letters", limit=1), api.get("/dead-letters", after=1)
    assert (len(fullest["items"]), fullest["next"]) == (1, 1), "a page"
    assert fullest["items"][0]["messages"] >= max(each["messages"] for each in rest["items"])
    (group,) = api.get("/faults", queue="tickets")["items"]
    assert (group["dead"], group["failures"], group["dead_in"]) == (3, 6, ["DLQ.tickets"])
    assert "in book" in api.get(f"/faults/{group['fault']}")["traceback"]
    page = api.get("/messages", queue="DLQ.tickets", fault=group["fault"], properties=["region=ch"], limit=2)
    assert [each["body"] for each in page["messages"]] == ["CHF", "CHF"]
    assert page["messages"][0]["dead_letter"]["error"] == "KeyError: 'CHF'"
    rest = api.get("/messages", queue="DLQ.tickets", limit=2, after=page["next"])
    assert len(rest["messages"]) == 1, "the cursor goes on"
    number = rest["messages"][0]["message_id"]
    life = api.get(f"/messages/{number}")
    assert [each["decision"] for each in life["attempts"]] == ["redeliver", "dead-letter"]
    assert (life["if_sent_back"][0]["queue"], "Both attempts" in life["verdict"]) == ("tickets", True)
    chosen = {"queue": "DLQ.tickets", "filter": {"properties": {"region": "ch"}}, "limit": 2}
    plan = api.post("/redrives/plan", **chosen)
    assert (plan["messages"], {each["code"] for each in plan["against"]}) == (2, {"never-succeeded-since", "no-consumer"})
    job = api.post("/redrives", **chosen)["job_id"]
    for _ in range(2):
        ch.basic_ack(get(ch, "tickets", auto_ack=False)[0].delivery_tag)
    wait_until("both have succeeded", lambda: api.get(f"/redrives/{job}")["succeeded"] == 2)
    assert api.ask("POST", f"/redrives/{job}/cancel")[1]["code"] == "redrive-ended"
    assert api.post("/messages/delete", queue="DLQ.tickets", filter={"message_ids": [number]})["messages"] in (0, 1)
    assert api.post(f"/faults/{group['fault']}/mute")["muted"] is True
    assert api.post(f"/faults/{group['fault']}/mute", muted=False)["muted"] is False


def test_every_answer_of_the_api_is_as_its_document_says(fail: Fail, api: Api, native: blocking.Connection) -> None:
    fail("forms", ["x\u0000y"])
    (group,) = api.get("/faults", queue="forms")["items"]
    number = api.get("/messages", queue="DLQ.forms")["messages"][0]["message_id"]
    job = native.call("start-redrive", queue="DLQ.forms", to="forms", filter={}, rate=1)
    said = {"queue": "forms", "message_id": number, "fault": group["fault"], "redrive": job["job_id"], "address": "forms", "limit": 5}
    acts: dict[str, dict[str, Any]] = {
        "move_messages": {"queue": "DLQ.forms", "to": "forms", "filter": {"message_ids": [1]}},
        "delete_messages": {"filter": {"message_ids": [1]}},
        "move_message": {"to": "forms"},
        "retry": {"act": "now"},
        "set_settings": {"layers": {"forms.#": {"max-delivery-attempts": 3}}},
        "preview_settings": {"layers": {"forms.#": {"max-delivery-attempts": 3}}},
        "unset_settings": {"pattern": "forms.#"},
        "set_policy": {"name": "short", "pattern": "^forms$", "definition": {"message-ttl": 60_000}},
        "clear_policy": {"name": "short"},
        "add_virtual_host": {"name": "/forms"},
        "delete_virtual_host": {"name": "/forms"},
        "backup": {"name": "forms"},
        "add_user": {"name": "x", "hash": "none"},
        "delete_user": {"name": "x"},
        "grant": {"name": "x", "rights": ["monitor"]},
        "revoke": {"name": "x", "rights": ["monitor"]},
    }
    ended = ("pause_redrive", "resume_redrive", "cancel_redrive", "start_redrive", "move_message", "delete_message", "edit_message")
    unknown = ("close_connection", "add_user", "delete_user", "grant", "revoke")
    for each in [each for each in AT_ONCE if each.media == JSON]:
        given = {name: said[name] for name in each.asks.model_fields if name in said} | acts.get(each.name, {})
        path = each.path.format_map({**said, "connection": "c0"})
        given = {name: value for name, value in given.items() if f"{{{name}}}" not in each.path}
        if each.method == "GET":
            TypeAdapter(each.answers).validate_python(api.get(path, **given), strict=True)
            continue
        status, found = api.ask("POST", path, given)
        assert status == 200 or (status in (404, 409) and each.name in ended) or each.name in unknown, (each.name, found)
        if status == 200:
            TypeAdapter(each.answers).validate_python(found, strict=True)


def test_whatever_is_asked_for_is_answered_in_order(api: Api) -> None:
    """Of each operation each parameter as it should not be: a problem that says so, or nothing found, and never a failure of ours."""
    for each in AT_ONCE:
        for name in each.asks.model_fields:
            for value in ("", "-1", "9" * 30, "\u202e<script>", "a" * 3000, "é\x00"):
                path = each.path.replace(f"{{{name}}}", urllib.parse.quote(value, safe="") or "%20")
                path = path.format_map({"message_id": 1, "fault": "3-0000", "redrive": 10**9, "connection": "c0", "name": "none"})
                given = {"queue": "nowhere", "to": "nowhere", "address": "nowhere", "act": "now"}
                given = {key: text for key, text in given.items() if key in each.asks.model_fields}
                given |= {name: value} if f"{{{name}}}" not in each.path else {}
                if each.method == "GET":
                    status, _ = api.ask("GET", f"{path}?{urllib.parse.urlencode(given)}")
                else:
                    status, _ = api.ask("POST", path, given)
                assert status in (200, 400, 403, 404, 409), (each.name, name, value, status)


def test_events_come_as_they_happen_and_who_was_cut_off_goes_on(fail: Fail, api: Api, address: str) -> None:
    with streamed(address, "?kinds=dead-letters.first") as coming:
        fail("streamed", ["GBP"])
        number, first = next(coming)
        assert (first["event"], first["queue"], first["number"]) == ("dead-letters.first", "streamed", number)
    fail("streamed-later", ["GBP"])
    for path, headers in (("", {"Last-Event-ID": str(number)}), (f"&after={number}", {}), ("&since_ms=0", {"Last-Event-ID": str(number)})):
        with streamed(address, f"?kinds=dead-letters.first{path}", headers) as coming:
            assert next(coming)[1]["queue"] == "streamed-later"
    assert api.ask("GET", "/events/stream?kinds=nonsense")[1]["code"] == "invalid-argument"
    assert api.ask("GET", "/events/stream?since_ms=-1")[1]["code"] == "invalid-argument"
    assert api.ask("GET", "/events/stream", headers=basic("guest", "wrong"))[1]["code"] == "login-refused"
    with ExitStack() as stack:
        for _ in range(20):
            next(stack.enter_context(streamed(address, "?since_ms=0")))
        assert api.ask("GET", "/events/stream")[1]["code"] == "too-many-streams"
    wait_until("they are over", lambda: can_stream(address))


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("[]", "invalid-body"),
        ("{", "invalid-body"),
        ("[" * 100_000, "invalid-body"),
        ({"queue": "q", "nothing": 1}, "invalid-argument"),
        ({"queue": 7}, "invalid-argument"),
        ({}, "invalid-argument"),
        ({"queue": "q", "stop_above": 101}, "invalid-argument"),
        ({"queue": "q", "filter": {"reason": "bored"}}, "invalid-argument"),
        ({"queue": "nowhere"}, "no-such-queue"),
        ({"queue": "nowhere", "newest_first": 0}, "invalid-argument"),
        ({"queue": "nowhere", "filter": {"since_ms": "1"}}, "invalid-argument"),
        ({"queue": "q", "filter": {"properties": {"a": 10**30}}}, "invalid-argument"),
        ({"queue": "q" * 1_100_000}, "too-large"),
    ],
)
def test_what_cannot_be_asked_is_a_problem_with_a_code(api: Api, said: Any, code: str) -> None:
    status, problem = api.ask("POST", "/redrives/plan", said)
    assert (problem["code"], problem["status"], problem["type"]) == (code, status, f"urn:homing:problem:{code}")


def test_the_api_asks_who_it_is_each_time(visitor: Visitor, api: Api) -> None:
    with_cookie = visitor.ask("GET", "/api/v1/overview")
    assert (with_cookie.status, with_cookie.headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")
    wrong: tuple[dict[str, str], ...] = ({}, basic("guest", "wrong"), {"Authorization": "Bearer x"}, {"Authorization": "Basic %%%"})
    assert [Visitor(visitor.address).ask("GET", "/api/v1/overview", headers=each).status for each in wrong] == [401] * 4
    assert visitor.ask("GET", "/api/v1/openapi.json").text == json.dumps(document(), ensure_ascii=False)
    assert api.ask("POST", "/redrives", {"queue": "q"}, {"Content-Type": "text/plain"})[1]["code"] == "invalid-body"
    form = {**GUEST, "Origin": "http://evil.example"}
    assert visitor.ask("POST", "/api/v1/redrives", "{}", form).status == 403
    assert api.ask("GET", "/nowhere")[1]["code"] == "no-such-operation"
    assert api.ask("PUT", "/policies")[1]["code"] == "no-such-method"
    assert set(visitor.ask("PUT", "/api/v1/policies").headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert api.ask("GET", "/faults?limit=1&limit=2")[0] == 400
    tag = visitor.ask("GET", "/api/v1/redrives", headers=GUEST).headers["etag"]
    assert api.ask("GET", "/redrives", headers={"If-None-Match": tag})[0] == 304
