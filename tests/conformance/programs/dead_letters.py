"""Limits, times to live, and what becomes of messages that die."""

from __future__ import annotations

import time
from typing import Any

from pika.spec import Basic, Channel, Confirm, Exchange, Queue

from tests.amqp_wire import QUIET_S, Ch, message_words, plain
from tests.conformance.programs.exchanges import TYPED
from tests.conformance.programs.stage import Stage, program


def mortal(s: Stage, name: str, target: str, **more: Any) -> str:
    """A queue whose dead letters go to the queue ``target``."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s(target)}
    return s.queue(name, {**arguments, **{key.replace("_", "-"): value for key, value in more.items()}}, durable=True)


def deaths(message: Any) -> list[Any]:
    """The entries of x-death in order: queue, reason, count."""
    return [[death["queue"], death["reason"], death["count"]] for death in message[1].headers["x-death"]]


def reject(ch: Ch, queue: str) -> Any:
    message = ch.wait(queue, no_ack=False)
    ch.send(Basic.Reject(message[0].delivery_tag, requeue=False))
    return message


@program
def a_rejected_message_in_full(s: Stage) -> Any:
    exchange, dlx = s.exchange("x", "topic"), s.exchange("dlx", "direct")
    source = s.queue("source", {"x-dead-letter-exchange": dlx}, durable=True)
    s.bind(source, exchange, "a.#")
    s.bind(s.queue("dead"), dlx, "a.b")
    ch = s.channel()
    ch.publish(exchange, "a.b", "x", headers={"mine": 1}, content_type="a/b", delivery_mode=2, priority=3, message_id="m", user_id="guest")
    reject(ch, source)
    return message_words(ch.wait(s("dead")))


@program
def an_expired_message_in_full(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead"), s.channel()
    s.queue("dead")
    ch.publish("", source, "x", expiration="100", headers={"mine": 1})
    return message_words(ch.wait(s("dead")))


@program
def an_expired_message_of_a_queue_with_a_time_to_live(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead", x_message_ttl=100), s.channel()
    s.queue("dead")
    for number in range(3):
        ch.publish("", source, str(number), expiration="60000" if number == 1 else None)
    ch.wait_count(s("dead"), 3)
    messages = [ch.wait(s("dead")) for _ in range(3)]
    return [[m[2].decode(), deaths(m), m[1].expiration, m[1].headers["x-death"][0].get("original-expiration")] for m in messages]


@program
def the_shorter_time_to_live_counts(s: Stage) -> Any:
    short, long, ch = s.queue("short", {"x-message-ttl": 100}), s.queue("long", {"x-message-ttl": 60_000}), s.channel()
    ch.ask(Confirm.Select())
    for queue, expiration in ((short, "60000"), (long, "100")):
        ch.publish("", queue, "x", expiration=expiration)
        ch.item()  # it has arrived: a queue that is empty now is so because the time is over
    ch.wait_count(short, 0)
    ch.wait_count(long, 0)
    return [ch.bodies(short), ch.bodies(long)]


@program
def what_a_consumer_holds_does_not_expire(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead", x_message_ttl=150), s.channel()
    s.queue("dead")
    ch.publish("", source, "held")
    ch.wait(source, no_ack=False)
    ch.publish("", source, "later, and nobody holds it")
    ch.wait(s("dead"))  # so the time of what is held is over too
    before = ch.count(s("dead"))
    ch.send(Basic.Nack(1, requeue=True))
    return [before, deaths(ch.wait(s("dead")))]


@program
def a_time_to_live_of_nothing(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead", x_message_ttl=0), s.channel()
    s.queue("dead")
    ch.publish("", source, "nobody waits")
    first = ch.wait(s("dead"))[2].decode()
    ch.ask(Basic.Consume(queue=source, no_ack=True))
    ch.publish("", source, "somebody waits")
    return [first, [item["body"] for item in ch.more(1.5)]]


@program
def an_expired_message_behind_one_that_is_not(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.publish("", queue, "stays")
    ch.publish("", queue, "goes", expiration="100")
    # In RabbitMQ nothing happens, which only time shows.
    ch.until(lambda: ch.count(queue) == 1, 1.6)
    return [ch.count(queue), ch.bodies(queue)]


@program
def the_longest_length_drops_the_head(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-max-length": 3}), s.channel()
    for number in range(6):
        ch.publish("", queue, str(number))
    ch.wait_count(queue, 3)
    ch.get(queue, no_ack=False)
    ch.publish("", queue, "6")
    ch.publish("", queue, "7")
    ch.wait_count(queue, 3)
    ch.send(Basic.Nack(1, requeue=True))
    return ch.bodies(queue)


@program
def a_length_of_nothing_and_one_in_bytes(s: Stage) -> Any:
    none, small, ch = s.queue("none", {"x-max-length": 0}), s.queue("small", {"x-max-length-bytes": 10}), s.channel()
    ch.ask(Confirm.Select())
    ch.publish("", none, "x")
    for body in ("a" * 4, "b" * 4, "c" * 4, "d" * 11, "e" * 10):
        ch.item()  # what was sent before is in
        ch.publish("", small, body)
    ch.item()
    return [ch.bodies(none), ch.bodies(small)]


@program
def what_is_pushed_out_dies_in_order(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead", x_max_length=2), s.channel()
    s.queue("dead")
    for number in range(5):
        ch.publish("", source, str(number))
    ch.wait_count(s("dead"), 3)
    messages = [ch.wait(s("dead")) for _ in range(3)]
    return [[[m[2].decode(), deaths(m)] for m in messages], ch.bodies(source)]


@program
def what_is_not_taken_in_dies(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead", x_max_length=2, x_overflow="reject-publish-dlx"), s.channel()
    s.queue("dead")
    for number in range(4):
        ch.publish("", source, str(number))
    ch.wait_count(s("dead"), 2)
    messages = [ch.wait(s("dead")) for _ in range(2)]
    return [[[m[2].decode(), deaths(m)] for m in messages], ch.bodies(source)]


@program
def many_rejected_at_once_die_in_order(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead"), s.channel()
    s.queue("dead")
    for number in range(5):
        ch.publish("", source, str(number))
    ch.wait_count(source, 5)
    for _ in range(5):
        ch.get(source, no_ack=False)
    ch.send(Basic.Nack(0, multiple=True, requeue=False))
    ch.wait_count(s("dead"), 5)
    return ch.bodies(s("dead"))


@program
def purging_and_deleting_kill_nothing(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead"), s.channel()
    s.queue("dead")
    for number in range(4):
        ch.publish("", source, str(number))
    ch.wait_count(source, 4)
    purged = ch.ask(Queue.Purge(queue=source))
    ch.publish("", source, "deleted")
    ch.wait_count(source, 1)
    deleted = ch.ask(Queue.Delete(queue=source))
    time.sleep(QUIET_S)  # that nothing comes is only shown by time
    return [purged, deleted, ch.count(s("dead"))]


@program
def deaths_are_counted_for_each_queue_and_reason(s: Stage) -> Any:
    work, wait, ch = mortal(s, "work", "wait"), mortal(s, "wait", "work", x_message_ttl=50), s.channel()
    ch.publish("", work, "x", delivery_mode=2)
    seen = []
    for _ in range(3):
        seen.append(plain(reject(ch, work)[1].headers))
    last = ch.wait(work)
    return [len(seen), deaths(last), {name: value for name, value in last[1].headers.items() if name != "x-death"}, ch.count(wait)]


@program
def one_queue_kills_for_two_reasons(s: Stage) -> Any:
    source, ch = mortal(s, "source", "back", x_message_ttl=600), s.channel()
    back = mortal(s, "back", "source")
    ch.publish("", source, "x")
    reject(ch, source)
    reject(ch, back)
    ch.wait_count(back, 1)
    reject(ch, back)
    reject(ch, source)
    return deaths(ch.wait(back))


@program
def a_circle_without_a_rejection_ends(s: Stage) -> Any:
    first, second, ch = mortal(s, "first", "second", x_message_ttl=50), mortal(s, "second", "first", x_message_ttl=50), s.channel()
    ch.ask(Confirm.Select())
    ch.publish("", first, "x")
    ch.item()
    ch.until(lambda: ch.count(first) == ch.count(second) == 0)
    time.sleep(QUIET_S)  # longer than it is in either, so one that was between the two is seen
    return [ch.count(first), ch.count(second)]


@program
def a_queue_that_is_its_own_dead_letter_queue(s: Stage) -> Any:
    own, ch = mortal(s, "own", "own"), s.channel()
    ch.publish("", own, "x")
    for _ in range(3):
        reject(ch, own)
    return deaths(ch.wait(own))


@program
def the_keys_of_a_dead_letter(s: Stage) -> Any:
    dlx, ch = s.exchange("dlx", "direct"), s.channel()
    for key in ("own", "copy", "hidden", "new"):
        s.bind(s.queue(key), dlx, key)
    kept = s.queue("kept", {"x-dead-letter-exchange": dlx})
    replaced = s.queue("replaced", {"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "new"})
    exchange = s.exchange("x", "fanout")
    s.bind(kept, exchange)
    s.bind(replaced, exchange)
    ch.publish(exchange, "own", "x", headers={"CC": ["copy"], "BCC": ["hidden"]})
    reject(ch, kept)
    found: Any = [[queue, message_words(ch.wait(s(queue)))] for queue in ("own", "copy")]
    found.append(ch.count(s("hidden")))
    reject(ch, replaced)
    found.append(message_words(ch.wait(s("new"))))
    return [found, [ch.bodies(s(queue)) for queue in ("own", "copy", "hidden", "new")]]


@program
def a_dead_letter_for_several_queues(s: Stage) -> Any:
    dlx, ch = s.exchange("dlx", "fanout"), s.channel()
    source = s.queue("source", {"x-dead-letter-exchange": dlx})
    for name in ("one", "two"):
        s.bind(s.queue(name), dlx)
    ch.publish("", source, "x")
    reject(ch, source)
    return [deaths(ch.wait(s(name))) for name in ("one", "two")]


@program
def a_dead_letter_exchange_with_an_alternate(s: Stage) -> Any:
    spare, ch = s.exchange("spare", "fanout"), s.channel()
    dlx = s.exchange("dlx", "direct", {"alternate-exchange": spare})
    s.bind(s.queue("dead"), spare)
    source = s.queue("source", {"x-dead-letter-exchange": dlx})
    ch.publish("", source, "x")
    reject(ch, source)
    message = ch.wait(s("dead"))
    return [message[0].exchange, message[0].routing_key, deaths(message)]


@program
def headers_exchanges_see_what_a_dead_letter_carries(s: Stage) -> Any:
    """Its own headers of every type and those of its death, at the dead-letter exchange, behind it, and as its alternate."""
    seen = s.exchange("seen", "headers")
    behind = s.exchange("behind", "fanout")
    s.one(Exchange.Bind(destination=seen, source=behind))
    instead = s.exchange("instead", "direct", {"alternate-exchange": seen})
    ways = {"at once": seen, "behind another": behind, "as alternate": instead}
    sources = {way: s.queue(f"source {way}", {"x-dead-letter-exchange": exchange}) for way, exchange in ways.items()}
    for name, value in TYPED.items():
        s.bind(s.queue(f"is {name}"), seen, "", {"own": value})
    rules: dict[str, dict[str, Any]] = {
        "own is there": {"own": None},
        "rejected first": {"x-match": "all-with-x", "x-first-death-reason": "rejected"},
        "expired first": {"x-match": "all-with-x", "x-first-death-reason": "expired"},
        "first of a source": {"x-match": "any-with-x", "x-first-death-queue": sources["at once"]},
        "of the default exchange": {"x-match": "all-with-x", "x-first-death-exchange": ""},
        "x-death is there": {"x-match": "any-with-x", "x-death": None},
        "x- does not count": {"x-match": "all", "x-death": None, "absent": 1},
        "JMSXGroupID and death": {"x-match": "all-with-x", "JMSXGroupID": "g", "x-first-death-reason": "rejected"},
    }
    for name, rule in rules.items():
        s.bind(s.queue(name), seen, "", rule)
    s.bind(s.queue("all"), seen, "", {})
    ch, sent = s.channel(), 0
    for way, source in sources.items():
        for name, value in TYPED.items():
            ch.publish("", source, f"{name} {way}", headers={"own": value, "JMSXGroupID": "g"})
            reject(ch, source)
            sent += 1
    ch.publish("", sources["at once"], "expired", expiration="1")
    ch.wait_count(s("all"), sent + 1)
    return {name: sorted(ch.bodies(s(name))) for name in (*rules, *(f"is {name}" for name in TYPED))}


@program
def a_dead_letter_exchange_that_is_missing(s: Stage) -> Any:
    source, ch = s.queue("source", {"x-dead-letter-exchange": s("missing")}), s.channel()
    ch.publish("", source, "x")
    reject(ch, source)
    ch.count(source)  # by now it is dropped
    dlx = s.exchange("missing", "fanout")
    s.bind(s.queue("dead"), dlx)
    return ch.until(lambda: ch.bodies(s("dead")), 2)  # that nothing comes, as with RabbitMQ, is only shown by time


@program
def x_death_that_a_client_sends(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead"), s.channel()
    s.queue("dead")
    mine = [{"count": 7, "reason": "rejected", "queue": source, "exchange": "", "routing-keys": [source]}]
    ch.publish("", source, "x", headers={"x-death": mine})
    passed_on = plain(reject(ch, source)[1].headers)
    return [passed_on["x-death"][0]["count"], deaths(ch.wait(s("dead")))]


@program
def republished_with_the_headers_it_came_with(s: Stage) -> Any:
    """What a retrying program does: deaths are counted on, another death of it comes first, and what is no list of deaths begins anew."""
    said = []
    source, ch = mortal(s, "source", "dead"), s.channel()
    s.queue("dead")
    ch.publish("", source, "x", expiration="1")
    for _ in range(2):
        died = ch.wait(s("dead"))
        headers = died[1].headers
        said.append([deaths(died), headers["x-first-death-reason"], headers["x-death"][-1].get("original-expiration")])
        ch.publish("", source, "x", headers=headers)
        reject(ch, source)
    died = ch.wait(s("dead"))
    said.append([deaths(died), died[1].headers["x-first-death-reason"]])
    wrong: Any
    for wrong in ("not a list", 7, []):
        ch.publish("", source, "x", headers={**died[1].headers, "x-death": wrong})
        reject(ch, source)
        said.append(deaths(ch.wait(s("dead"))))
    return said


# -- quorum queues -----------------------------------------------------------------------------------------------------


@program
def a_delivery_limit(s: Stage) -> Any:
    source, ch = mortal(s, "source", "dead", x_queue_type="quorum", x_delivery_limit=2), s.channel()
    s.queue("dead")
    ch.publish("", source, "x", delivery_mode=2)
    seen = []
    for _ in range(3):
        message = ch.wait(source, no_ack=False)
        seen.append([message[0].redelivered, plain(message[1].headers)])
        ch.send(Basic.Nack(message[0].delivery_tag, requeue=True))
    message = ch.wait(s("dead"))
    return [seen, deaths(message), message[0].redelivered]


@program
def deliveries_are_counted_in_quorum_queues(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-queue-type": "quorum"}, durable=True), s.channel()
    ch.publish("", queue, "x", delivery_mode=2, headers={"mine": 1})
    seen = []
    for _ in range(3):
        message = ch.wait(queue, no_ack=False)
        seen.append([message[0].redelivered, plain(message[1].headers)])
        ch.send(Basic.Nack(message[0].delivery_tag, requeue=True))
    lost = s.wire().channel()
    lost.ask(Basic.Consume(queue=queue))
    lost.take(1)
    lost.wire.cut()
    message = ch.wait(queue)
    return [seen, message[0].redelivered, plain(message[1].headers)]


@program
def headers_of_what_came_back(s: Stage) -> Any:
    """To a consumer, each way; with headers of its own, with none, and with nothing but a body."""
    outcomes: dict[str, Any] = {}
    ways: dict[str, Any] = {
        "nack": Basic.Nack(0, multiple=True, requeue=True),
        "recover": Basic.Recover(requeue=True),
        "channel.close": Channel.Close(200, "", 0, 0),
    }
    sent: list[dict[str, Any]] = [{"headers": {"id": "7"}, "delivery_mode": 2}, {"headers": {}, "message_id": "m"}, {}]
    for way, method in ways.items():
        for kind in ("classic", "quorum"):
            queue, ch = s.queue(f"{way}.{kind}", {"x-queue-type": kind}, durable=True), s.channel()
            for number, properties in enumerate(sent):
                ch.publish("", queue, str(number), **properties)
            ch.wait_count(queue, 3)
            ch.ask(Basic.Consume(queue=queue, consumer_tag="first"))
            first = ch.take(3)
            ch.ask(Basic.Cancel(consumer_tag="first"))
            ch.send(method)
            again = s.channel()
            again.wait_count(queue, 3)
            again.ask(Basic.Consume(queue=queue, no_ack=True))
            came = sorted(again.take(3), key=lambda message: message[2])
            outcomes[f"{way}, {kind}"] = [[(m.redelivered, plain(p.headers)) for m, p, _ in each] for each in (first, came)]
    return outcomes


@program
def redelivered_in_classic_queues(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.publish("", queue, "x")
    first = ch.wait(queue, no_ack=False)
    ch.send(Basic.Nack(1, requeue=True))
    second = ch.wait(queue)
    return [[m[0].redelivered, plain(m[1].headers)] for m in (first, second)]


@program
def what_comes_back_to_a_quorum_queue_keeps_its_place(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-queue-type": "quorum"}, durable=True), s.channel()
    for number in range(4):
        ch.publish("", queue, str(number))
    ch.wait_count(queue, 4)
    for _ in range(2):
        ch.wait(queue, no_ack=False)
    ch.send(Basic.Nack(2, multiple=True, requeue=True))
    ch.wait_count(queue, 4)
    return ch.bodies(queue)
