"""The connection itself: how it opens and ends, channels, heartbeats, and bytes that are no AMQP."""

from __future__ import annotations

import struct
import time
from typing import Any

from pika import frame, spec
from pika.spec import Basic, Channel, Connection, Queue

from tests.amqp_wire import HEADER, Ch, Gone, Wire, reported
from tests.conformance.programs.stage import Stage, program

#: RabbitMQ takes three seconds to hang up on who has not logged in; and a machine may pause.
LAST_S = 10.0


def ends(wires: dict[str, tuple[Wire, int]]) -> dict[str, list[Any]]:
    """For each connection everything up to the end of its socket, or until time is up; closes are answered."""
    last = time.monotonic() + LAST_S
    return {name: _end(wire, channel, last) for name, (wire, channel) in wires.items()}


def _end(wire: Wire, channel: int, last: float) -> list[Any]:
    said: list[Any] = []
    try:
        while (item := wire.next(channel, max(last - time.monotonic(), 0.05))) is not None:
            said.append(reported(item))
            if isinstance(item, Connection.Close):
                wire.send(0, Connection.CloseOk())
                return said
    except Gone:
        return [*said, "gone"]
    return said


def method(number: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", 1, channel, len(payload) + 4) + number.to_bytes(4, "big") + payload + b"\xce"


@program
def what_the_broker_says_of_itself(s: Stage) -> Any:
    wire = s.wire()
    capabilities = wire.start.server_properties["capabilities"]
    tune = [wire.tune.channel_max, wire.tune.frame_max, wire.tune.heartbeat]
    return [
        wire.start.version_major,
        wire.start.version_minor,
        sorted(wire.start.mechanisms.split()),
        wire.start.locales,
        capabilities,
        tune,
    ]


@program
def other_protocol_headers(s: Stage) -> Any:
    wires: dict[str, tuple[Wire, int]] = {}
    for header in (b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x00\x08\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 8):
        wire = s.wire(login=False)
        wire.write(header)
        wires[repr(header)] = wire, 0
    return ends(wires)


@program
def older_protocol_headers(s: Stage) -> Any:
    """0-9 is 0-9-1 by another name; in 0-8, goodbyes have other numbers, channel.open-ok is empty, and basic.consume has no table."""
    queue = s("older").encode()
    short = bytes((len(queue),)) + queue
    said: dict[str, list[str]] = {}
    for header, goodbye, more in ((b"\x01\x01\x00\x09", 50, bytes(4)), (b"\x01\x01\x08\x00", 60, b""), (b"\x01\x01\x09\x01", 60, b"")):
        wire = s.wire(login=False)
        wire.write(b"AMQP" + header)
        start = wire.raw_until(b"\x00\x00\x00\x05en_US\xce")
        log_in = frame.Method(0, Connection.StartOk({"capabilities": {}}, "PLAIN", "\0guest\0guest", "en_US")).marshal()
        wire.write(log_in)
        tune = wire.raw_until(b"\xce")
        for each in (Connection.TuneOk(100, 131_072, 0), Connection.Open("/")):
            wire.send(0, each)
        wire.send(1, Channel.Open())
        wire.send(1, Queue.Declare(0, queue.decode(), auto_delete=True))
        opened = wire.raw_until(bytes(8) + b"\xce")
        wire.write(method(0x3C0014, bytes(2) + short + b"\x01c\x00" + more))
        consumes = wire.raw_until(b"\x00\x3c\x00\x15\x01c\xce")
        wire.write(method(0x0A0000 | goodbye, b"\x00\xc8\x00\x00\x00\x00\x00", 0))
        rest = wire.raw_until(bytes((0, 10, 0, goodbye + 1, 0xCE)))
        said[header.hex()] = [f"{start[11]}.{start[12]}", *_methods(tune + opened + consumes + rest)]
    return said


def _methods(data: bytes) -> list[str]:
    """Class and method of each frame that has one; of channel.open-ok the bytes behind them, too."""
    found: list[str] = []
    while data:
        kind, _, size, group, number = struct.unpack_from(">BHIHH", data)
        if kind == 1:
            found.append(f"{group}.{number}" + (f" {size - 4}" if (group, number) == (20, 11) else ""))
        data = data[size + 8 :]
    return found


@program
def bodies_beyond_the_frame(s: Stage) -> Any:
    """Frames of up to eight bytes more than was agreed, and of nine: some clients forget a frame's overhead."""
    wires: dict[str, tuple[Wire, int]] = {}
    took: list[Any] = []
    queue = s.queue("q")
    for beyond, frames in ((1, 1), (8, 1), (8, 2), (9, 1)):
        wire = s.wire(frame_max=4096)
        channel = wire.channel()
        channel.ask(spec.Confirm.Select())
        body = bytes(4096 - 8 + beyond)
        header = frame.Header(1, frames * len(body), spec.BasicProperties()).marshal()
        publish = frame.Method(1, Basic.Publish(0, "", queue)).marshal()
        wire.write(publish + header + frames * frame.Body(1, body).marshal())
        if beyond == 9:
            wires["nine"] = wire, 1
        else:
            took.append([channel.answer(), len(channel.wait(queue)[2])])
    return [took, ends(wires)]


@program
def logins(s: Stage) -> Any:
    wires: dict[str, tuple[Wire, int]] = {}
    for name, capabilities, response in (
        ("wrong password", {"authentication_failure_close": True}, "\0guest\0wrong"),
        ("unknown user", {"authentication_failure_close": True}, "\0eve\0guest"),
        ("wrong password, old client", {}, "\0guest\0wrong"),
    ):
        wire = s.wire(login=False)
        wire.write(HEADER)
        wire.next(0)
        wire.send(0, Connection.StartOk({"capabilities": capabilities}, "PLAIN", response, "en_US"))
        wires[name] = wire, 0
    wire = s.wire(login=False)
    wire.write(HEADER)
    wire.next(0)
    wire.send(0, Connection.StartOk({}, "NONSENSE", "", "en_US"))
    wires["unknown mechanism"] = wire, 0
    return ends(wires)


@program
def tuning(s: Stage) -> Any:
    wires: dict[str, tuple[Wire, int]] = {}
    for channel_max, frame_max in ((2048, 131_072), (100, 131_073), (100, 4095), (100, 1)):
        wire = s.wire(login=False)
        wire.to_tune()
        wire.send(0, Connection.TuneOk(channel_max, frame_max, 0))
        wire.send(0, Connection.Open("/"))
        wires[f"{channel_max} channels, frames of {frame_max}"] = wire, 0
    wire = s.wire(login=False)
    wire.to_tune()
    wire.send(0, Connection.TuneOk(0, 131_072, 0))
    wire.send(0, Connection.Open("/"))
    wires["any number of channels"] = wire, 0
    wire = s.wire(login=False)
    wire.to_tune()
    wire.send(0, Connection.TuneOk(100, 0, 0))
    wire.send(0, Connection.Open("/"))
    wires["frames of any size"] = wire, 0
    wire = s.wire(channel_max=3)
    wire.send(4, Channel.Open())
    wires["channel 4 of 3"] = wire, 4
    limits: tuple[dict[str, int], ...] = ({"frame_max": 4096}, {"channel_max": 1})
    accepted = [Ch(s.wire(**each), 1).ask(Channel.Open()) for each in limits]
    return [ends(wires), accepted]


@program
def virtual_hosts(s: Stage) -> Any:
    said = []
    for vhost in ("missing", "", "/"):
        wire = s.wire(login=False)
        wire.to_tune()
        wire.send(0, Connection.TuneOk(100, 131_072, 0))
        wire.send(0, Connection.Open(vhost))
        said.append(reported(wire.next(0)))
    return said


@program
def out_of_turn(s: Stage) -> Any:
    """Methods that come before it is their time, or twice."""
    wires: dict[str, tuple[Wire, int]] = {}
    first: tuple[tuple[str, int, Any], ...] = (
        ("open for start-ok", 0, Connection.Open("/")),
        ("tune-ok for start-ok", 0, Connection.TuneOk(100, 131_072, 0)),
        ("channel.open for start-ok", 1, Channel.Open()),
        ("declare for start-ok", 1, Queue.Declare(queue="q")),
    )
    for name, channel, each in first:
        wire = s.wire(login=False)
        wire.write(HEADER)
        wire.next(0)
        wire.send(channel, each)
        wires[name] = wire, 0
    for name, channel, each in (("open for tune-ok", 0, Connection.Open("/")), ("channel.open for tune-ok", 1, Channel.Open())):
        wire = s.wire(login=False)
        wire.to_tune()
        wire.send(channel, each)
        wires[name] = wire, 0
    wire = s.wire(login=False)
    wire.to_tune()
    wire.send(0, Connection.TuneOk(100, 131_072, 0))
    wire.send(1, Channel.Open())
    wires["channel.open for open"] = wire, 0
    return ends(wires)


@program
def out_of_place(s: Stage) -> Any:
    """Methods on channels they do not belong to, and those that only a broker sends. Channel 1 is open."""
    wires: dict[str, tuple[Wire, int]] = {}
    cases: tuple[tuple[str, list[tuple[int, Any]]], ...] = (
        ("unknown channel", [(5, Queue.Declare(queue="q"))]),
        ("publish on an unknown channel", [(5, Basic.Publish(exchange="", routing_key="q"))]),
        ("ack on an unknown channel", [(5, Basic.Ack(1))]),
        ("close of an unknown channel", [(5, Channel.Close(200, "", 0, 0))]),
        ("second open", [(1, Channel.Open())]),
        ("open on channel 0", [(0, Channel.Open())]),
        ("declare on channel 0", [(0, Queue.Declare(queue="q"))]),
        ("connection.open again", [(0, Connection.Open("/"))]),
        ("start-ok again", [(0, Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))]),
        ("connection.open on a channel", [(1, Connection.Open("/"))]),
        ("a broker's method", [(1, Queue.DeclareOk("q", 0, 0))]),
        ("a broker's delivery", [(1, Basic.GetEmpty(""))]),
        ("a broker's start", [(0, Connection.Tune(1, 2, 3))]),
    )
    for name, sent in cases:
        wire = s.wire()
        wire.channel()
        for channel, each in sent:
            wire.send(channel, each)
            if isinstance(each, Basic.Publish):
                wire.content(channel, b"x", spec.BasicProperties())
        wires[name] = wire, sent[-1][0]
    return ends(wires)


@program
def goodbyes(s: Stage) -> Any:
    wire = s.wire()
    wire.channel()
    wire.send(0, Connection.Close(200, "bye", 0, 0))
    first = reported(wire.next(0))
    ch = s.channel()
    closed = [ch.ask(Channel.Flow(True)), ch.ask(Channel.Close(200, "bye", 0, 0)), ch.ask(Channel.Open()), ch.ask(Channel.Flow(True))]
    return [first, closed, s.one(Channel.Flow(False))]


@program
def nothing_but_the_close_is_heard_on_a_channel_that_is_closing(s: Stage) -> Any:
    wire, queue = s.wire(), s.queue("q")
    ch = wire.channel()
    ch.send(Queue.Declare(queue=s("missing"), passive=True))
    first = reported(wire.next(1))
    wire.send(1, Queue.Declare(queue=s("missing"), passive=True))
    wire.send(1, Basic.Publish(exchange="", routing_key=queue))
    wire.content(1, b"not heard", spec.BasicProperties())
    wire.send(1, Channel.CloseOk())
    wire.send(1, Channel.Open())
    return [first, reported(wire.next(1)), s.channel().bodies(queue)]


@program
def both_close_the_channel_at_once(s: Stage) -> Any:
    wire = s.wire()
    ch = wire.channel()
    ch.send(Queue.Declare(queue=s("missing"), passive=True))
    ch.send(Channel.Close(200, "bye", 0, 0))
    said = [reported(wire.next(1)), reported(wire.next(1))]
    wire.send(1, Channel.CloseOk())
    wire.send(1, Channel.Open())
    return [said, reported(wire.next(1))]


@program
def malformed_frames(s: Stage) -> Any:
    """Each on a connection of its own, with channel 1 open."""
    declare = frame.Method(1, Queue.Declare(queue=s("q"))).marshal()
    publish = frame.Method(1, Basic.Publish(exchange="", routing_key="q")).marshal()
    header, body = frame.Header(1, 5, spec.BasicProperties()).marshal(), frame.Body(1, b"12345").marshal()
    table = b"\x00\x00\x01q\x00"
    cases = {
        "wrong frame end": declare[:-1] + b"\x00",
        "a frame too large": struct.pack(">BHI", 3, 1, 131_073) + b"x" * 131_073 + b"\xce",
        "a frame far too large": struct.pack(">BHI", 1, 1, 0xFFFF_FFFF) + b"x" * 100,
        "unknown frame type": b"\x07" + declare[1:],
        "frame type 0": b"\x00" + declare[1:],
        "unknown class": method(0x00FF_0001, b""),
        "unknown method": method(0x0032_00FF, b""),
        "an empty method": struct.pack(">BHI", 1, 1, 0) + b"\xce",
        "a method cut short": struct.pack(">BHI", 1, 1, 3) + b"\x00\x32\x00\xce",
        "arguments cut short": method(0x0032_000A, b"\x00\x00\x05ab"),
        "no arguments": method(0x0032_000A, b""),
        "a table longer than the frame": method(0x0032_000A, table + b"\x00\x00\x00\xff"),
        "a table of an unknown type": method(0x0032_000A, table + b"\x00\x00\x00\x03\x01a?"),
        "a name in a table cut short": method(0x0032_000A, table + b"\x00\x00\x00\x02\x09a"),
        "a header without a publish": header,
        "a body without a publish": body,
        "a body before the header": publish + body,
        "a second header": publish + header + header,
        "a method within content": publish + declare,
        "a method after the header": publish + header + declare,
        "more body than the header says": publish + header + frame.Body(1, b"123456").marshal(),
        "a header of another class": publish + header[:7] + b"\x00\x5a" + header[9:],
        "a header cut short": publish + struct.pack(">BHI", 2, 1, 4) + b"\x00\x3c\x00\x00\xce",
        "properties cut short": publish + struct.pack(">BHI", 2, 1, 14) + struct.pack(">HHQH", 60, 0, 0, 0x8000) + b"\xce",
        "a heartbeat on a channel": b"\x08\x00\x01\x00\x00\x00\x00\xce",
        "a heartbeat with something in it": b"\x08\x00\x00\x00\x00\x00\x01x\xce",
        "a header on channel 0": header[:1] + b"\x00\x00" + header[3:],
    }
    wires: dict[str, tuple[Wire, int]] = {}
    for name, data in cases.items():
        wire = s.wire()
        wire.channel()
        wire.write(data)
        wires[name] = wire, 1
    return ends(wires)


@program
def malformed_frames_before_the_login(s: Stage) -> Any:
    cases = {
        "not a frame": b"x" * 100,
        "a frame too large": struct.pack(">BHI", 1, 0, 4097) + b"x" * 4097 + b"\xce",
        "a frame far too large": struct.pack(">BHI", 1, 0, 0x7FFF_FFFF),
        "wrong frame end": frame.Method(0, Connection.TuneOk(1, 4096, 0)).marshal()[:-1] + b"\x00",
        "an unknown method": method(0x00FF_0001, b"", 0),
        "arguments cut short": method(0x000A_000B, b"\x00\x00\x00\x09", 0),
    }
    wires: dict[str, tuple[Wire, int]] = {}
    for name, data in cases.items():
        wire = s.wire(login=False)
        wire.write(HEADER)
        wire.next(0)
        wire.write(data)
        wires[name] = wire, 0
    return ends(wires)


@program
def heartbeats(s: Stage) -> Any:
    """Both sides say they live; one that does not is given up after two of them."""
    wire = s.wire(heartbeat=1)
    began = time.monotonic()
    beats = 0
    try:
        while (found := wire.frame(12)) is not None:
            beats += isinstance(found, frame.Heartbeat)
    except Gone:
        took = time.monotonic() - began
        return [beats > 1, 1.5 < took < 20]
    return "never given up"


@program
def no_heartbeats(s: Stage) -> Any:
    wire = s.wire(heartbeat=0)
    try:
        return [reported(wire.next(0, 1.2)), wire.channel().ask(Basic.Qos())]
    except Gone:
        return "gone"


@program
def frames_in_one_piece(s: Stage) -> Any:
    """A whole session written before anything is read."""
    wire, queue = s.wire(login=False), s.queue("q")
    wire.to_tune()
    methods = [
        (0, Connection.TuneOk(100, 131_072, 0)),
        (0, Connection.Open("/")),
        (1, Channel.Open()),
        (1, Queue.Declare(queue=queue)),
        (1, Basic.Publish(exchange="", routing_key=queue)),
    ]
    content = frame.Header(1, 1, spec.BasicProperties()).marshal() + frame.Body(1, b"x").marshal()
    wire.write(b"".join(frame.Method(*each).marshal() for each in methods) + content + frame.Method(1, Basic.Get(queue=queue)).marshal())
    return [reported(wire.next(number)) for number in (0, 1, 1, 1)]


@program
def frames_byte_by_byte(s: Stage) -> Any:
    wire, queue = s.wire(), s.queue("q")
    ch = wire.channel()
    frames = frame.Method(1, Basic.Publish(exchange="", routing_key=queue)).marshal()
    frames += frame.Header(1, 4, spec.BasicProperties(content_type="a/b")).marshal()
    frames += frame.Body(1, b"wh").marshal() + frame.Body(1, b"").marshal() + frame.Body(1, b"at").marshal()
    for at in range(len(frames)):
        wire.write(frames[at : at + 1])
    message = ch.wait(queue)
    return [message[1].content_type, message[2].decode()]


@program
def many_channels(s: Stage) -> Any:
    wire, queue = s.wire(), s.queue("q")
    channels = [wire.channel() for _ in range(100)]
    for number, ch in enumerate(channels):
        ch.publish("", queue, str(number))
    channels[0].wait_count(queue, 100)
    return sorted(map(int, channels[50].bodies(queue))) == list(range(100))
