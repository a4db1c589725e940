"""What a conformance program plays on: a broker's port, names of its own, connections that end with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from pika import spec

from tests.amqp_wire import Ch, Wire, plain

#: Name -> program. A program says what it saw, as JSON.
PROGRAMS: Final[dict[str, Callable[[Stage], Any]]] = {}


def program(play: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
    """Enters ``play`` under its own name."""
    assert play.__name__ not in PROGRAMS, f"{play.__name__} is there twice"
    PROGRAMS[play.__name__] = play
    return play


class Stage:
    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self._prefix = f"{name}."
        self._wires: list[Wire] = []
        self._main: Wire | None = None

    def __call__(self, name: str) -> str:
        """``name``, so that no two programs meet."""
        return self._prefix + name

    def without_prefix(self, outcome: Any) -> Any:
        return json.loads(json.dumps(plain(outcome)).replace(self._prefix, ""))

    def wire(self, **options: Any) -> Wire:
        wire = Wire(self.port, **options)
        self._wires.append(wire)
        return wire

    def channel(self) -> Ch:
        """A new channel on the program's main connection, which is made anew where it was closed."""
        if self._main is None or not self._main.open:
            self._main = self.wire()
        return self._main.channel()

    def one(self, method: Any) -> Any:
        """What ``method`` is answered with on a channel of its own."""
        channel = self.channel()
        answer = channel.ask(method)
        if not channel.closed:
            assert channel.ask(spec.Channel.Close(200, "", 0, 0)) == "Channel.CloseOk"
        return answer

    def each(self, *methods: Any) -> list[Any]:
        return [self.one(method) for method in methods]

    def queue(self, name: str, arguments: dict[str, Any] | None = None, **flags: bool) -> str:
        """Declares a queue; its whole name."""
        answer = self.one(spec.Queue.Declare(queue=self(name), arguments=arguments, **flags))
        assert answer.startswith("Queue.DeclareOk"), answer
        return self(name)

    def exchange(self, name: str, kind: str, arguments: dict[str, Any] | None = None, **flags: bool) -> str:
        answer = self.one(spec.Exchange.Declare(exchange=self(name), type=kind, arguments=arguments, **flags))
        assert answer == "Exchange.DeclareOk", answer
        return self(name)

    def bind(self, queue: str, exchange: str, key: str = "", arguments: dict[str, Any] | None = None) -> None:
        """``queue`` is a whole name; so is ``exchange``."""
        answer = self.one(spec.Queue.Bind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments))
        assert answer == "Queue.BindOk", answer

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
