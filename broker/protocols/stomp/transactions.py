"""The transactions of one STOMP connection: what was sent, acknowledged and failed in each, until COMMIT or ABORT."""

from __future__ import annotations

from typing import Any, Final

from ...broker import Broker
from ...connection import Connection
from ...core.message import AMQP_ORIGIN, Message
from ...core.queue import Queue
from ...errors import Refused
from .codec import Headers
from .message_mapping import Sent, name_of
from .outlets import Outlet, route_at_once
from .subscription import Named
from .subscriptions import Subscriptions

_MOST: Final = 1000
_MOST_FAILED: Final = 10_000


class _Transaction:
    """``number``: of the broker's session that it is."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sends = 0
        self.failed: list[tuple[Named, Any]] = []


class Transactions:
    def __init__(self, broker: Broker, connection: Connection, subscriptions: Subscriptions) -> None:
        self._broker = broker
        self._connection = connection
        self._subscriptions = subscriptions
        #: By the client's name.
        self._open: dict[str, _Transaction] = {}
        self._last = 0

    def begin(self, headers: Headers) -> None:
        """Raises Refused, as all of these."""
        name = name_of(headers, "transaction", needed=True)
        if name in self._open:
            raise Refused("transaction-exists", f"transaction {name[:80]!r} is open", "commit it first, or use another name")
        if len(self._open) >= _MOST:
            raise Refused("too-many-transactions", f"{_MOST} transactions are open here", "commit them first")
        self._last += 1
        self._open[name] = _Transaction(self._last)

    def send(self, sent: Sent, bodies: list[bytes], outlet: Outlet) -> None:
        transaction = self._find(sent.transaction)
        messages = outlet.told(sent).messages(outlet.address, outlet.producer.name, bodies, self._broker.now_ms())
        self._broker.intake.sent(outlet.producer, messages[-1])
        self._broker.transactions.hold_sends(self._connection, transaction.number, messages, None)
        transaction.sends += len(messages)

    def acknowledge(self, name: str, named: list[Named]) -> None:
        transaction = self._find(name)
        for each in named:
            self._broker.transactions.hold_acknowledgement(self._connection, transaction.number, *each)

    def fail(self, name: str, named: list[Named], report: Any) -> None:
        transaction = self._find(name)
        if len(transaction.failed) >= _MOST_FAILED:
            raise Refused("transaction-too-large", f"a transaction has at most {_MOST_FAILED} NACKs", "commit it sooner")
        transaction.failed += [(each, report) for each in named]

    def commit(self, headers: Headers) -> None:
        transaction = self._ended(headers)
        self._broker.transactions.commit(self._connection, transaction.number, None, transaction.sends, self._named)
        for named, report in transaction.failed:
            held = [each for each in named[1] if each.consumer is named[0]]
            if held:
                self._subscriptions.fail((named[0], held), report)

    def _named(self, message: Message) -> list[Queue] | None:
        """Of what goes through an exchange."""
        return route_at_once(self._broker, self._connection, message).queues if AMQP_ORIGIN in (message.properties or {}) else None

    def abort(self, headers: Headers) -> None:
        """What it acknowledged is unacknowledged again, and not delivered again by itself."""
        self._broker.transactions.end(self._connection, self._ended(headers).number)
        self._subscriptions.rolled_back()

    def clear(self) -> None:
        self._open.clear()

    def _find(self, name: str) -> _Transaction:
        found = self._open.get(name)
        if found is None:
            raise Refused("no-such-transaction", f"there is no transaction {name[:80]!r}", "send BEGIN first")
        return found

    def _ended(self, headers: Headers) -> _Transaction:
        name = name_of(headers, "transaction", needed=True)
        transaction = self._find(name)
        del self._open[name]
        return transaction
