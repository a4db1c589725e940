"""Who hangs up, and when."""

from __future__ import annotations

import socket
from typing import Any

from pika import frame
from pika.spec import Basic, Channel, Connection, Queue

from tests.amqp_wire import Gone, Wire, reported
from tests.conformance.programs.stage import Stage, program

#: So long the socket is seen to stay open.
OPEN_S = 0.3


def said(wire: Wire, timeout_s: float = 8.0) -> Any:
    try:
        return reported(wire.next(0, timeout_s))
    except Gone:
        return "gone"


@program
def the_client_hangs_up_after_close_ok(s: Stage) -> Any:
    wire = s.wire()
    wire.send(0, Connection.Close(200, "bye", 0, 0))
    first = [said(wire), said(wire, OPEN_S)]
    wire.send(1, Channel.Open())
    wire.write(b"junk" * 1000)
    then = said(wire, OPEN_S)
    wire.socket.shutdown(socket.SHUT_WR)
    return [first, then, said(wire)]


@program
def an_error_of_the_connection_waits_for_its_answer(s: Stage) -> Any:
    wire = s.wire()
    wire.send(7, Basic.Ack(1))
    first = [said(wire), said(wire, OPEN_S)]
    wire.send(0, Connection.CloseOk())
    return [first, said(wire)]


@program
def both_say_goodbye_at_once(s: Stage) -> Any:
    wire = s.wire()
    wire.send(7, Basic.Ack(1))
    first = said(wire)
    wire.send(0, Connection.Close(200, "bye", 0, 0))
    then = [said(wire), said(wire, OPEN_S)]
    wire.send(0, Connection.CloseOk())
    return [first, then, said(wire)]


@program
def what_comes_behind_a_channels_goodbye(s: Stage) -> Any:
    """In one piece, as where one thread closes a channel on which another acknowledges."""
    behind: dict[str, Any] = {
        "ack": Basic.Ack(1),
        "nack": Basic.Nack(1),
        "a second close": Channel.Close(200, "", 0, 0),
        "a declaration": Queue.Declare(queue=s("q")),
        "a publish": Basic.Publish(0, "", s("nowhere")),
    }
    outcomes: dict[str, Any] = {}
    for name, method in behind.items():
        wire = s.wire()
        wire.send(1, Channel.Open())
        assert reported(wire.next(1)) == "Channel.OpenOk"
        wire.write(b"".join(frame.Method(1, each).marshal() for each in (Channel.Close(200, "", 0, 0), method)))
        outcomes[name] = [reported(wire.next(1)), reported(wire.next(1, OPEN_S))]
    return outcomes
