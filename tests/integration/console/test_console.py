"""The failure desk as its users have it: a real broker with real failures of pika's, the console beside it, and a browser's requests."""

from __future__ import annotations

import io
import json
import re
import tarfile
import urllib.parse
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import homing
from examples.failure_reports.with_pika import reporting
from homing.client import blocking
from tests.amqp_support import channel, get, wait_for_count
from tests.console_support import GUEST, PAYLOADS, Api, Fail, Page, Visitor, book
from tests.process import HomingCommand, Server, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
DEAD = "DLQ.orders"
GIF = "GIF89a\x01"


def number_of(page: Page, name: str) -> int:
    """A figure of a page, by what stands over it."""
    return int(re.findall(rf"{name} ([\d,]+)", page.text)[0].replace(",", ""))


def test_why_it_died_is_two_clicks_from_the_first_page(fail: Fail, visitor: Visitor) -> None:
    fail("orders", ["GBP", "GBP", "GBP"])
    overview = visitor.see("/")
    (sentence,) = [text for text in overview.said if text.startswith("orders: ")]
    assert "KeyError: 'GBP'" in sentence
    assert "6 failures" in sentence or "failures a minute" in sentence
    fault = visitor.see(overview.links["fault →"])
    assert "return" not in fault.text or "_RATES" in fault.text
    assert "KeyError: 'GBP'" in fault.text
    assert "in book" in fault.text, "the traceback"
    assert number_of(fault, "Dead") == 3
    message = visitor.see(next(link for text, link in fault.links.items() if text.isdigit()))
    assert message.text.count("failed: the consumer failed it") == 2
    assert "dead-lettered to DLQ.orders" in message.text
    assert "Both attempts on record failed alike" in message.text
    assert "GBP" in message.text.partition("Body")[2]


def test_what_is_sent_back_was_shown_before_and_is_followed(fail: Fail, ch: BlockingChannel, visitor: Visitor) -> None:
    fail("orders", ["GBP", "GBP"])
    before = number_of(visitor.see("/"), "Dead letters")
    where = f"/redrives/new?queue={DEAD}&canary=1"
    plan = visitor.see(where)
    assert f"Dry run: {before} messages of {DEAD} would be sent" in plan.text
    assert f"{before:,} may come back: nothing that failed so has succeeded since" in plan.text
    assert f"homing redrive {DEAD} --canary 1 --dry-run --url" in plan.text
    assert number_of(visitor.see("/"), "Dead letters") == before, "it only reckoned"
    started = visitor.send("/redrives", plan.fields("/redrives"))
    assert started.status == 303
    wait_until("the canary is sent", lambda: number_of(visitor.see(started.leads_to), "Sent") > 0)
    waits = visitor.see(started.leads_to)
    assert number_of(waits, "Sent") == 1, "the canary"
    assert "the others wait for these" in waits.text
    for _ in range(before):
        ch.basic_ack(get(ch, "orders", auto_ack=False)[0].delivery_tag)
    wait_until("it is done", lambda: "done" in visitor.see(started.leads_to).text)
    done = visitor.see(started.leads_to)
    assert (number_of(done, "Sent"), number_of(done, "Dead again"), number_of(done, "Left there")) == (before, 0, 0)
    wait_until("all have succeeded", lambda: number_of(visitor.see(started.leads_to), "Succeeded") == before)
    fault = visitor.see(visitor.see("/faults").links["KeyError: 'GBP'"])
    assert f"{before} that failed so have succeeded since" in fault.text
    refused = visitor.send(started.leads_to, [("csrf", dict(plan.fields("/redrives"))["csrf"]), ("act", "cancel")])
    assert (refused.status, "redrive-ended" in refused.text) == (409, True)


def test_a_filter_takes_what_a_command_takes_and_deletion_shows_its_number_first(fail: Fail, ch: BlockingChannel, visitor: Visitor) -> None:
    fail("bills", ["EU1", "EU2", "US1"])
    fail("bills", ["EU3"], {"region": "eu"})
    listed = visitor.see("/dead-letters?queue=DLQ.bills&property=region%3Deu")
    assert len([1 for tag, found in listed.elements if found.get("name") == "id"]) == 1
    assert "homing peek DLQ.bills --property region=eu --url" in listed.text
    assert "homing peek DLQ.bills --body-contains EU" in visitor.see("/dead-letters?queue=DLQ.bills&body_contains=EU").text
    assert "No message of DLQ.bills fits" in visitor.see("/dead-letters?queue=DLQ.bills&error_type=OSError").text
    picked = visitor.see("/dead-letters?queue=DLQ.bills&from_queue=bills&reason=delivery_limit")
    ids = [found["value"] for _, found in picked.elements if found.get("name") == "id"]
    assert len(ids) == 4
    asked = visitor.see(f"/dead-letters/delete?queue=DLQ.bills&id={ids[0]}&id={ids[1]}")
    assert "This removes 2 messages for good" in asked.text
    wait_for_count(ch, "DLQ.bills", 4)
    done = visitor.send("/dead-letters/delete", asked.fields("/dead-letters/delete"))
    assert (done.status, done.leads_to) == (303, "/dead-letters?queue=DLQ.bills")
    wait_for_count(ch, "DLQ.bills", 2)


def test_what_is_said_of_a_fault_is_kept(fail: Fail, visitor: Visitor) -> None:
    fail("parcels", ["PLN"])
    page = visitor.see("/faults?queue=parcels")
    (where,) = [link for text, link in page.links.items() if text.startswith("KeyError")]

    def say(**said: str) -> str:
        fields = visitor.see(where).fields("")
        assert visitor.send(where, [*fields, *said.items()]).leads_to == where
        return visitor.see(where).text

    assert [text for text in visitor.see("/").said if text.startswith("parcels: ")]
    assert "Report it again" in say(act="mute")
    assert not [text for text in visitor.see("/").said if text.startswith("parcels: ")], "muted ones are not told of"
    assert "Mute" in say(act="unmute")
    assert "fixed in 2.4" in say(act="fixed", version="2.4")
    assert "It is fixed" in say(act="reopen")


@pytest.mark.parametrize("path", ["/", "/faults", "/dead-letters?queue=DLQ.x", "/redrives/new?queue=a", "/messages/1", "/search?q=a"])
def test_who_is_not_logged_in_is_asked_to_and_comes_back(address: str, path: str) -> None:
    visitor = Visitor(address)
    asked = visitor.ask("GET", path)
    assert (asked.status, urllib.parse.unquote(asked.leads_to)) == (303, "/login" if path == "/" else f"/login?next={path}")
    form = visitor.see(asked.leads_to)
    wrong = visitor.send("/login", [*form.fields("/login"), ("user", "guest"), ("password", "wrong")])
    assert (wrong.status, visitor.cookie) == (401, "")
    right = visitor.send("/login", [*form.fields("/login"), ("user", "guest"), ("password", "guest")])
    assert (right.status, right.leads_to) == (303, path)
    assert right.headers["set-cookie"].endswith("HttpOnly; Max-Age=43200; Path=/; SameSite=strict")


@pytest.mark.parametrize("following", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "\t/x"])
def test_a_login_leads_to_no_other_site(address: str, following: str) -> None:
    assert Visitor(address).send("/login", {"user": "guest", "password": "guest", "next": following}).leads_to == "/"


def test_what_another_site_has_asked_is_turned_away(visitor: Visitor) -> None:
    csrf = dict(visitor.see("/").fields("/logout"))["csrf"]
    job = {"csrf": csrf, "queue": DEAD}
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}):
        assert visitor.send("/redrives", job, headers).status == 403, headers
    for wrong in ("", "x", csrf[:-1], csrf + "x", "é"):
        assert visitor.send("/redrives", {**job, "csrf": wrong}).status == 403, wrong
    other = Visitor(visitor.address)
    other.log_in()
    assert other.send("/redrives", job).status == 403, "the word of another session"
    assert visitor.ask("GET", "/", headers={"Host": "evil.example"}).status == 421
    assert visitor.ask("GET", "/", headers={"Host": f"localhost:{visitor.host.partition(':')[2]}"}).status == 200
    refused = visitor.ask("DELETE", "/redrives/new")
    assert (refused.status, set(refused.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
    assert visitor.send("/redrives", {"csrf": csrf, "queue": "x" * 1_100_000}).status == 400
    assert visitor.ask("POST", "/redrives", "{}", {"Content-Type": "application/json", "Origin": visitor.address}).status == 400
    assert visitor.see("/redrives").text.count("of DLQ.orders") <= 1, "none of these has begun anything"
    assert visitor.send("/logout", {"csrf": csrf}).leads_to == "/login"
    assert visitor.ask("GET", "/").status == 303


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/login", "/nowhere", "/messages/999999999", "/static/console.css"),
        *("/static/../app.py", "/static/%2e%2e/app.py"),
    ],
)
def test_every_answer_says_what_a_browser_may_do_with_it(visitor: Visitor, path: str) -> None:
    answer = visitor.ask("GET", path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["frame-ancestors"], answer.headers["x-frame-options"]) == ("'none'", "DENY")
    assert (answer.headers["x-content-type-options"], "server" in answer.headers) == ("nosniff", False)
    kept = path == "/static/console.css"
    assert answer.headers["cache-control"] == ("public, max-age=3600" if kept else "no-store")
    assert "def make" not in answer.text
    assert answer.status == {"/": 200, "/login": 200, "/static/console.css": 200}.get(path, 404)


def test_a_queue_says_what_becomes_of_what_fails_in_it(fail: Fail, ch: BlockingChannel, visitor: Visitor, api: Api) -> None:
    fail("seats", ["GBP"])
    ch.basic_publish("", "seats", b"EUR")
    assert visitor.ask("GET", "/search?q=seats").leads_to == "/queue?queue=seats"
    page = visitor.see(visitor.see("/queues").links["seats"])
    assert number_of(page, "Ready") == 1
    assert "After 2 attempts, at once, it goes to DLQ.seats" in page.text
    for over in ("hour", "24 hours"):
        assert re.search(rf"The last {over} Came 1 Succeeded 0 Failed 2 In it 1\b", page.text), "of what is durable"
    assert len([1 for tag, _ in page.elements if tag == "circle"]) == 2, "an attempt each"
    assert 'max-delivery-attempts 2 "*", line' in page.text
    tried = visitor.see("/queue?queue=seats&instead=max-delivery-attempts%3D3%0D%0Aredelivery-delay%3D10s")
    assert "After 3 attempts, after 20 s, not counting the time that the attempts take, it goes to DLQ.seats" in tried.text
    assert visitor.ask("GET", "/queue?queue=seats&instead=nothing%3D1").status == 400
    ch.exchange_declare("sales", "topic")
    ch.queue_bind("seats", "sales", "seat.#")
    assert "address seats exchange sales under seat.# seats no consumers dead: DLQ.seats" in visitor.see("/queue?queue=seats").text
    assert api.get("/bindings", exchange="sales") == api.get("/bindings", queue="seats")
    assert [each["bindings"] for each in api.get("/exchanges")["items"] if each["exchange"] == "sales"] == [1]
    assert "Nobody consumes from it" in page.text
    assert "seats: nobody consumes, and 1 message waits" in visitor.see("/").text
    for act, shows in (("pause", "Hand out again"), ("resume", "Pause")):
        done = visitor.send("/queue", [*visitor.see("/queue?queue=seats").fields("/queue"), ("act", act)])
        assert shows in visitor.see(done.leads_to).text
    assert number_of(visitor.see("/queue?queue=DLQ.seats"), "Dead letters") == 1
    events = visitor.see("/events")
    (where,) = [link for text, link in events.links.items() if text.startswith("messages of queue seats are dead-lettered")]
    assert where == "/dead-letters?queue=DLQ.seats"


def test_what_waits_is_shown_with_its_time(ch: BlockingChannel, visitor: Visitor, native: blocking.Connection) -> None:
    native.call("set-settings", layers={"later": {"redelivery_delay_ms": 7_200_000}})
    ch.queue_declare("later", durable=True)
    ch.basic_publish("", "later", b"GBP", pika.BasicProperties(delivery_mode=2))
    reporting(book)(ch, *get(ch, "later", auto_ack=False))
    wait_until("it waits", lambda: [each for each in native.call("retrying") if each["queue"] == "later"])
    page = visitor.see("/waiting?queue=later")
    assert re.search(r"1 for a time; the first goes in (2 h|1 h 59 min)\b", page.text)
    assert page.links["KeyError: 'GBP'"].startswith("/faults/")
    assert "dead: DLQ.later, made for the first" in visitor.see("/queue?queue=later").text


def test_an_edit_shows_its_difference_and_leads_to_what_took_the_place(fail: Fail, ch: BlockingChannel, visitor: Visitor, api: Api) -> None:
    body = '{"currency": "GBP",\r\n "amount": 12.50}'
    fail("fares", [body], {"region": "uk", "try": "1"})
    number = api.get("/messages", queue="DLQ.fares")["messages"][0]["message_id"]
    form = visitor.see(visitor.see(f"/messages/{number}").links["Edit…"])
    where = f"/messages/{number}/edit"
    said = [("body", body.replace("GBP", "EUR")), ("properties", "region=eu\r\nnew:=1"), ("to", "")]
    shown = visitor.send(where, [*form.fields(f"{where}#live"), *said])
    text = Page(shown.text).text
    assert re.search(r'-region: uk -try: 1 \+region: eu \+new: 1 @@ .* - "currency": "GBP", \+ "currency": "EUR", "amount": 12.50', text)
    assert f"homing edit {number} --queue DLQ.fares --set region=eu --set new:=1 --unset try --body FILE" in text
    wait_for_count(ch, "fares", 0)
    done = visitor.send(where, Page(shown.text).fields(where))
    _, properties, sent = get(ch, "fares")
    assert (sent.decode(), properties.headers) == (body.replace("GBP", "EUR"), {"region": "eu", "new": 1}), "line ends as they were"
    assert visitor.see(f"/messages/{number}").links[f"message {done.leads_to.rpartition('/')[2]}"] == done.leads_to
    assert visitor.see(done.leads_to).links[f"message {number}"] == f"/messages/{number}"
    assert visitor.ask("GET", where).status == 404, "it is in no queue any more"
    fail("fares", ['{"n": 1.10}'])
    number = api.get("/messages", queue="DLQ.fares")["messages"][0]["message_id"]
    dry = api.post(f"/messages/{number}/edit", patch={"n": 2}, dry_run=True)
    assert (dry["edited"], [line for line in dry["difference"] if line[0] in "+-"]) == (None, ['-  "n": 1.10', '+  "n": 2'])
    assert api.post(f"/messages/{number}/edit", patch={"n": 2})["edited"] > number
    assert get(ch, "fares")[2] == b'{"n":2}'
    assert api.ask("POST", f"/messages/{number}/edit", {"patch": {"n": 3}})[0] == 404


def test_the_search_finds_what_somebody_has_at_hand(fail: Fail, visitor: Visitor, ch: BlockingChannel) -> None:
    fail("hotels", ["XAU"], {"guest": "Ada"})
    ch.queue_declare("hotels-late")
    ch.basic_publish("", "DLQ.hotels", b"", pika.BasicProperties(message_id="b7-11"))
    wait_for_count(ch, "DLQ.hotels", 2)

    def found(said: str) -> Page:
        return visitor.see(f"/search?q={urllib.parse.quote(said)}")

    assert found("hotel").links.keys() >= {"hotels", "hotels-late", "DLQ.hotels"}
    assert found("'xau'").links["KeyError: 'XAU'"].startswith("/faults/")
    assert found("guest=Ada").links["DLQ.hotels"] == "/dead-letters?queue=DLQ.hotels&property=guest%3DAda"
    assert found("b7-11").links["DLQ.hotels"] == "/dead-letters?queue=DLQ.hotels&amqp_message_id=b7-11"
    assert "Nothing: no queue" in found("guest=Bob").text


def test_who_is_connected_is_shown_and_can_be_closed(
    ch: BlockingChannel, visitor: Visitor, native: blocking.Connection, broker: Server
) -> None:
    ch.queue_declare("rooms", durable=True)
    with channel(broker) as other:
        other.basic_qos(prefetch_count=7)
        other.basic_consume("rooms", lambda *_: None)
        (mine,) = native.call("consumers", queue="rooms")
        where = visitor.see("/connections").links[mine["connection"]]
        page = visitor.see(where)
        assert re.search(r"Library Pika Python Client Library \d", page.text)
        assert (number_of(page, "Consumers"), page.links["rooms"]) == (1, "/queue?queue=rooms")
        assert re.search(r"rooms Pika Python Client Library [\d.]+ – 7 0", page.text), "its prefetch, and what it holds"
        ch.basic_publish("", "rooms", b"x")
        wait_until("it holds one", lambda: native.call("consumers", queue="rooms")[0]["unsettled"] == 1)
        assert re.search(r"– 7 1 oldest (in )?[\d.]+ \w+", visitor.see("/queue?queue=rooms").text), "and since when"
        asked = visitor.see(page.links["Close…"])
        assert "Its 1 consumer and 0 producers end, and what it holds, 1 message, goes back" in asked.text
        assert f"homing connection close {mine['connection']} --url" in asked.text
        done = visitor.send(f"{where}/close", asked.fields(f"{where}/close"))
        assert (done.leads_to, visitor.ask("GET", where).status) == ("/connections", 404)
        with pytest.raises(pika.exceptions.ConnectionClosed):
            other.connection.process_data_events(5)


def test_a_setting_is_set_after_it_was_shown_what_it_touches(ch: BlockingChannel, visitor: Visitor, native: blocking.Connection) -> None:
    for name in ("tours", "tours.late"):
        ch.queue_declare(name, durable=True)
    native.call("set-policy", name="short", pattern="^tours", definition={"message-ttl": 60_000}, apply_to="queues")
    said = "pattern=tours.%23&settings=max-delivery-attempts%3D7%0D%0Aredelivery-delay%3D30s"
    asked = visitor.see(f"/settings/change?{said}")
    assert "Dry run: for 2 queues something else would hold" in asked.text
    assert re.search(r"tours max-delivery-attempts 2 7 .*tours.late", asked.text), "of each queue what was and what would be"
    assert "homing settings set 'tours.#' max-delivery-attempts=7 redelivery-delay=30s --url" in asked.text
    assert native.call("list-settings") == [each for each in native.call("list-settings") if each["pattern"] != "tours.#"]
    assert visitor.send("/settings/change", asked.fields("/settings/change")).leads_to == "/settings"
    page = visitor.see("/settings?address=tours.late")
    assert 'max-delivery-attempts 7 "tours.#", homing settings' in page.text
    assert re.search(r"short / queues that match \^tours 0 message-ttl 60000 command", page.text)
    asked = visitor.see("/settings/change?pattern=tours.%23&unset=max-delivery-attempts")
    assert "tours max-delivery-attempts 7 2" in asked.text
    visitor.send("/settings/change", asked.fields("/settings/change"))
    assert native.call("explain", address="tours")["settings"]
    (left,) = [each["settings"] for each in native.call("list-settings") if each["pattern"] == "tours.#"]
    assert left == {"redelivery-delay": 30_000}
    for wrong in ("max-delivery-attempts", "nothing=1", "redelivery-delay=soon", "redelivery-delay=[", ""):
        assert visitor.ask("GET", f"/settings/change?pattern=a&settings={urllib.parse.quote(wrong)}").status == 400, wrong


def test_a_purge_shows_its_numbers_first(fail: Fail, ch: BlockingChannel, visitor: Visitor) -> None:
    fail("seats-old", ["A", "B"])
    ch.basic_publish("", "DLQ.seats-old", b"no dead letter")
    wait_for_count(ch, "DLQ.seats-old", 3)
    page = visitor.see("/queue?queue=DLQ.seats-old")
    get(ch, "DLQ.seats-old", auto_ack=False)
    asked = visitor.see(page.links["Purge…"])
    assert "This removes 2 messages for good" in asked.text
    assert "The 1 message that consumers hold stay" in asked.text
    done = visitor.send("/queue/purge", asked.fields("/queue/purge"))
    assert number_of(visitor.see(done.leads_to), "Ready") == 0


def test_the_journal_is_shown_and_backed_up(visitor: Visitor, broker: Server) -> None:
    page = visitor.see("/journal")
    assert re.search(r"Database [\d.,]+ [KM]iB", page.text)
    asked = visitor.see(page.links["Back up…"])
    done = visitor.send("/journal/backup", asked.fields("/journal/backup"))
    (path,) = re.findall(r"<code>(/\S+)</code>", done.text)
    assert (Path(path) / "homing.db").exists(), path
    fields = dict(asked.fields("/journal/backup"))
    refused = visitor.send("/journal/backup", fields)
    assert (refused.status, fields["name"] in refused.text) == (400, True), "a backup of that name is there"


def test_an_export_is_made_from_the_page_and_handed_out(visitor: Visitor, api: Api, native: blocking.Connection) -> None:
    asked = visitor.see("/journal/export")
    assert re.search(r"where [\d.,]+ [KMGT]iB are free", asked.text), "its numbers first"
    assert visitor.send("/journal/export", asked.fields("/journal/export")).leads_to == "/journal"
    wait_until("it is made", lambda: "Download" in visitor.see("/journal").links)
    made = api.get("/export")
    answer = visitor.ask("GET", f"/api/v1/export/{made['name']}", headers=GUEST)
    assert answer.headers["content-disposition"] == f'attachment; filename="homing-export-{made["name"]}.tar"'
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        manifest = archive.extractfile(f"{made['name']}/_homing_export.json")
        assert manifest is not None
        assert sum(json.load(manifest)["rows"].values()) == made["rows"]
    parts = [native.call("export-part", name=made["name"], offset=offset)["data"] for offset in (0, 512)]
    assert (parts[0][:512], parts[0][512:][:9]) == (answer.body[:512], parts[1][:9]), "it goes on where it was left"
    assert visitor.ask("GET", f"/journal/export/{made['name']}").body == answer.body
    page = visitor.see("/journal")
    visitor.send("/journal/export", page.fields("/journal/export"))
    assert (api.get("/export")["state"], visitor.ask("GET", f"/journal/export/{made['name']}").status) == ("none", 404)


def test_reports_are_listed_and_opened_apart(visitor: Visitor, api: Api, broker: Server, native: blocking.Connection) -> None:
    place = broker.data / "reports"
    assert visitor.see("/journal").text.count(f"homing analyze snapshot --out {place}/today") == 1
    (place / "monday").mkdir(parents=True)
    (place / "monday" / "report.html").write_text("<script>alert(1)</script>" + "x" * 300_000)
    (place / "half-made").mkdir()
    (place / "elsewhere").symlink_to(broker.data)
    (broker.data / "report.html").write_text("not meant")
    (place / "linked").mkdir()
    (place / "linked" / "report.html").symlink_to(broker.config_path)
    shown = visitor.see("/journal")
    assert [text for text, link in shown.links.items() if link.startswith("/reports/")] == ["monday"]
    assert [each["name"] for each in api.get("/reports")["items"]] == ["monday"]
    opened = visitor.ask("GET", "/reports/monday")
    assert (len(opened.text), opened.headers["content-type"]) == (300_025, "text/html; charset=utf-8")
    policy = dict(each.strip().partition(" ")[::2] for each in opened.headers["content-security-policy"].split(";"))
    assert (policy["sandbox"], policy["default-src"], policy["frame-ancestors"]) == ("allow-scripts", "'none'", "'none'"), (
        "it is of no site"
    )
    assert api.ask("GET", "/reports/nothing")[1]["code"] == "no-such-report"
    for name in ("elsewhere", "linked", "half-made", "..%2Fdata", "..", "monday%2F..%2Fmonday", "%2e%2e", "."):
        assert visitor.ask("GET", f"/reports/{name}").status in (303, 404), name
        with pytest.raises(homing.CallError, match="no-such-report"):
            native.call("report-part", name=urllib.parse.unquote(name), offset=0)


def named(payload: str) -> str:
    """A queue's name with it, of which the broker takes none that does not print."""
    return "q" + "".join(filter(str.isprintable, payload))


def test_texts_that_others_wrote_do_not_act(fail: Fail, visitor: Visitor) -> None:
    for payload in PAYLOADS:
        fail(named(payload), [payload, "{}"], {f"h{payload}": payload})
    seen = ["/", "/faults", "/dead-letters", "/redrives", "/queues", "/waiting", "/events", "/connections", "/settings", "/journal"]
    for payload in PAYLOADS:
        said, queue = urllib.parse.quote(payload), urllib.parse.quote(named(payload))
        dead = f"queue={urllib.parse.quote(f'DLQ.{named(payload)}')}"
        page = visitor.see(f"/dead-letters?{dead}&error_type=KeyError")
        numbers = [found["value"] for _, found in page.elements if found.get("name") == "id"]
        assert len(numbers) == 2, payload
        seen += [f"/messages/{numbers[0]}", f"/messages/{numbers[1]}", f"/faults?queue={queue}"]
        seen += [f"/{each}?{dead}" for each in ("dead-letters", "redrives/new", "dead-letters/delete", "queue", "waiting")]
        seen += [f"/queue?queue={queue}", f"/waiting?queue={queue}"]
        seen += [f"/dead-letters?{dead}&{each}={said}" for each in ("where", "property", "after", "since", "body_contains", "id")]
        seen += [f"/dead-letters?queue={said}", f"/redrives/new?queue={said}&to={said}", f"/login?next={said}"]
        seen += [f"/search?q={said}", f"/faults/{said}", f"/settings?address={said}", f"/queue?queue={queue}&instead={said}"]
        seen += [f"/connections/{urllib.parse.quote(payload, safe='')}"]
        seen += [f"/queue/purge?queue={queue}", f"/settings/change?pattern={queue}&settings=redelivery-delay%3D1s"]
        seen += [f"/settings/change?pattern={said}&settings={said}"]
    seen += [link for text, link in visitor.see("/faults").links.items() if link.startswith("/faults/")]
    for path in seen:
        answer = visitor.ask("GET", path)
        assert answer.status in (200, 303, 400, 404), path
        page = Page(answer.text)
        assert {found["src"] for tag, found in page.elements if tag == "script"} <= {"/static/htmx-4.0.1.min.js", "/static/console.js"}
        acting = [(tag, name) for tag, found in page.elements for name in found if name.startswith("on") or name == "style"]
        assert acting == [], path
        assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "embed", "base")], path
        assert {found["hx-get"] for _, found in page.elements if "hx-get" in found} <= {path, "/login"}, path
        assert not [found for _, found in page.elements if found.get("href", "/").partition(":")[0] == "javascript"], path
        assert "\u202e" not in answer.text, path
        assert "49" not in page.text.partition("How much")[0] or "{{ 7 * 7 }}" not in path, path


def test_a_body_is_a_file_and_nothing_that_is_shown_but_an_image(fail: Fail, visitor: Visitor, api: Api) -> None:
    fail("pages", ["<html><script>alert(1)</script>"])
    page = visitor.see("/dead-letters?queue=DLQ.pages")
    (number,) = [found["value"] for _, found in page.elements if found.get("name") == "id"]
    answer = visitor.ask("GET", f"/messages/{number}/body")
    assert answer.text == "<html><script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="message-{number}.bin"'
    assert not [found for tag, found in visitor.see(f"/messages/{number}").elements if tag == "img"]
    fail("pictures", [GIF])
    (message,) = api.get("/messages", queue="DLQ.pictures")["messages"]
    where = f"/messages/{message['message_id']}"
    (image,) = [found["src"] for tag, found in visitor.see(where).elements if tag == "img"]
    shown = visitor.ask("GET", image).headers
    assert (shown["content-type"], shown["content-disposition"].partition(";")[0]) == ("image/gif", "attachment")


def test_what_it_cannot_do_it_says(address: str, homing: HomingCommand, broker: Server) -> None:
    def refused(*arguments: str) -> tuple[int, str]:
        done = homing("console", "--url", broker.url, *arguments)
        return done.returncode, done.stderr

    code, said = refused("--port", address.rpartition(":")[2])
    assert (code, "port-in-use" in said, "another --port" in said) == (1, True, True)
    assert "console-beyond-loopback" in refused("--host", "0.0.0.0")[1]
    code, said = refused("--url", broker.url.replace("//", "//guest:guest@"))
    assert (code, "invalid-url" in said) == (2, True)
