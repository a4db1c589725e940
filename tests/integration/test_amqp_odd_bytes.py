"""Bytes that are no text and numbers that are none: they route, fail and come back, and whatever is written of them is JSON."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pika
import pika.data
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.amqp_support import AMQP, channel, get, wait_for_count
from tests.process import HomingCommand, Server

KEY: Any = b"eu.\xff\xfe"
HEADERS: dict[str, Any] = {"zero": b"\x00\xff", "empty": b"", "looks like text": b"plain", "long": bytes(range(256)), "text": "größe"}
NUMBERS = {"nan": math.nan, "most": math.inf, "least": -math.inf}


@pytest.fixture
def floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """pika has no type for them, as other clients have."""
    known = pika.data.encode_value

    def encode(pieces: list[bytes], value: Any) -> int:
        if not isinstance(value, float):
            return int(known(pieces, value))
        pieces.append(struct.pack(">cd", b"d", value))
        return 9

    monkeypatch.setattr(pika.data, "encode_value", encode)


def no_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def read(text: str) -> Any:
    """As a reader that is exact."""
    found = json.loads(text, parse_constant=no_json)
    json.dumps(found, ensure_ascii=False).encode()
    return found


def lines(shell: HomingCommand, *words: str) -> list[Any]:
    done = shell(*words)
    assert done.returncode == 0, done.stderr
    return [read(line) for line in done.stdout.splitlines()]


def reject(ch: BlockingChannel, queue: str) -> None:
    method, _, _ = get(ch, queue, auto_ack=False)
    ch.basic_reject(method.delivery_tag, requeue=False)


def test_a_routing_key_that_is_not_utf8_routes_dies_and_comes_back(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    server = start_server(AMQP)
    homing.url = server.url
    with channel(server) as ch:
        for exchange in ("in", "dlx"):
            ch.exchange_declare(exchange, "topic", durable=True)
        by_key = {"x-dead-letter-exchange": "dlx"}
        ch.queue_declare("work", durable=True, arguments=by_key)
        ch.queue_declare("replaced", durable=True, arguments={**by_key, "x-dead-letter-routing-key": b"new.\xff"})
        for queue, key in (("dead", KEY), ("dead.replaced", b"new.\xff")):
            ch.queue_declare(queue, durable=True)
            ch.queue_bind(queue, "dlx", key)
        ch.queue_bind("work", "in", KEY)
        ch.queue_bind("replaced", "in", "copy")
        ch.queue_declare("copied", durable=True)
        ch.queue_bind("copied", "in", b"cc.\xff")
        ch.basic_publish("in", KEY, b"x", pika.BasicProperties(delivery_mode=2, headers={"CC": [b"cc.\xff", "copy"]}))
        assert get(ch, "copied")[2] == b"x"
        reject(ch, "work")
        reject(ch, "replaced")
        wait_for_count(ch, "dead", 1)
        wait_for_count(ch, "dead.replaced", 1)
    server.kill()  # bindings and hops are on disk as they were
    server.start()
    with channel(server) as ch:
        ch.basic_publish("in", KEY, b"y", pika.BasicProperties(delivery_mode=2))
        wait_for_count(ch, "work", 1)
        (dead,) = lines(homing, "peek", "dead", "--json")
        assert dead["hops"][0]["routing_keys"] == [{"base64": "ZXUu//4="}, {"base64": "Y2Mu/w=="}, "copy"]
        (hop,) = read(dead["properties"]["_HOMING_HOPS"])
        assert hop["to_keys"] == dead["hops"][0]["to_keys"]
        _, properties, _ = get(ch, "dead", auto_ack=False)
        assert properties.headers["x-death"][0]["routing-keys"] == [KEY, b"cc.\xff", "copy"]
        assert lines(homing, "dead", "export", "dead.replaced", "--out", "-")[0]["hops"][0]["to_keys"] == [{"base64": "bmV3Lv8="}]
    with channel(server) as ch:
        assert homing("redrive", "dead").returncode == 0
        wait_for_count(ch, "work", 2)
        ch.queue_unbind("work", "in", KEY)
        ch.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            ch.basic_publish("in", KEY, b"z", mandatory=True)


@pytest.mark.usefixtures("floats")
def test_what_json_has_no_word_for_says_what_it_is_and_goes_in_again(
    start_server: Callable[..., Server], homing: HomingCommand, tmp_path: Path
) -> None:
    server = start_server({**AMQP, "address-settings": {"#": {"message-key-property": "zero"}}})
    homing.url = server.url
    with channel(server) as ch:
        arguments = {"x-numbers": NUMBERS["nan"], "x-bytes": [b"\xff", {"in": NUMBERS["most"]}], "x-dead-letter-exchange": ""}
        ch.queue_declare("odd", durable=True, arguments=arguments | {"x-dead-letter-routing-key": "graves"})
        ch.queue_declare("graves", durable=True)
        ch.queue_declare("numbers", durable=True)
        ch.basic_publish("", "numbers", b"x", pika.BasicProperties(delivery_mode=2, headers={**HEADERS, **NUMBERS}))
        ch.basic_publish("", "odd", b"\xff", pika.BasicProperties(delivery_mode=2, headers=HEADERS, message_id=KEY))
        reject(ch, "odd")
        wait_for_count(ch, "graves", 1)
    told = {
        "zero": {"base64": "AP8="},
        "empty": {"base64": ""},
        "looks like text": {"base64": "cGxhaW4="},
        "long": {"base64": b64encode(HEADERS["long"]).decode()},
        "text": "größe",
    }
    (peeked,) = lines(homing, "peek", "graves", "--json")
    (exported,) = lines(homing, "dead", "export", "graves", "--out", "-")
    (life,) = lines(homing, "history", "--queue", "graves", "--json")
    (numbers,) = lines(homing, "peek", "numbers", "--json")
    assert numbers["properties"] == told
    for shown in (peeked, exported, life["message"]):
        assert {name: shown["properties"][name] for name in told} == told
        assert shown["body"] == {"base64": "/w=="}
    odd = next(each for each in read(homing("queues", "--json").stdout) if each["name"] == "odd")["options"]["amqp"]["arguments"]
    assert (odd["x-numbers"], odd["x-bytes"]) == ({"float": "NaN"}, [{"base64": "/w=="}, {"in": {"float": "Infinity"}}])
    assert homing("journal", "export", "--data", str(server.data), "--out", "rows").returncode == 0
    pyarrow = pytest.importorskip("pyarrow.parquet")
    tables = {each: pyarrow.read_table(homing.directory / "rows" / each).to_pylist() for each in ("queues", "attempts", "messages")}
    (options,) = [read(each["options_json"]) for each in tables["queues"] if each["queue"] == "odd"]
    assert options["amqp"]["arguments"]["x-numbers"] == {"float": "NaN"}
    # Columns of text have what there is in place of bytes that are none.
    assert [each["message_key"] for each in tables["attempts"]] == ["\x00\ufffd"]
    assert [each["amqp_message_id"] for each in tables["messages"] if each["queue"] == "graves"] == ["eu.\ufffd\ufffd"]
    (received,) = lines(homing, "receive", "graves", "--json")
    assert received["properties"]["zero"] == told["zero"]
    (homing.directory / "exported").write_text(json.dumps(exported) + "\n")
    assert lines(homing, "send", "whole", "--file", "exported", "--json-lines", "--json")[-1] == {"address": "whole", "sent": 1}
    with channel(server) as ch:
        _, properties, body = get(ch, "whole")
        assert ({name: properties.headers.get(name) for name in HEADERS}, body) == (HEADERS, b"\xff")
        assert not [name for name in properties.headers if name.startswith(("_AMQ_", "_HOMING_"))]
    assert homing("send", "whole", "--file", "broken", "--json-lines").returncode == 4
    (homing.directory / "broken").write_text('{"no": "body"}\n')
    assert "line 1 is no message" in homing("send", "whole", "--file", "broken", "--json-lines").stderr
    again = [word for name in told for word in ("-p", f"{name}:={json.dumps(received['properties'][name])}")]
    assert homing("send", "again", "--body", "x", *again).returncode == 0
    with channel(server) as ch:
        assert {name: value for name, value in get(ch, "again")[1].headers.items() if name in HEADERS} == HEADERS
