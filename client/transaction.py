"""The open transaction of a TRANSACTED session: commit, rollback, and what a lost connection does to them.

A commit runs as a task of its own, so that cancelling the caller leaves no half-known state: the next ``commit()`` or
``rollback()`` waits for it and tells its outcome.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from homing.broker.protocols.native.codec import Op

from .errors import ConnectionLost, HomingError, TransactionError
from .message import Message, State
from .reply import Reply

if TYPE_CHECKING:
    from .session import Session
    from .wire import Wire


def _rolled_back(why: str, connection_lost: bool = False) -> TransactionError:
    return TransactionError(
        "transaction-rolled-back", f"the transaction was rolled back: {why}", "do its work again in a new transaction", connection_lost
    )


class Transaction:
    def __init__(self, session: Session, number: int) -> None:
        self.number = number
        self.sends = 0  # messages written into the open transaction
        self.holding = False  # a COMMIT is out: what is sent now belongs to the next transaction and waits
        self.broken: TransactionError | None = None  # lost with a connection; told by the next send, commit or rollback
        self._session = session
        self._connection = session.connection
        self._committing: asyncio.Task[None] | None = None

    # -- what sessions call

    async def commit(self) -> None:
        """Returns when sends and acknowledgements are on disk; raises TransactionError when all of it was rolled back
        (the broker's code, or ``transaction-rolled-back``), or ``outcome-unknown`` when that could not be learned."""
        if self._committing is not None:  # an earlier commit() was cancelled: its outcome comes first
            await self._outcome_of(self._committing)
            if self._is_empty():
                return
        self._committing = task = self._connection.loop.create_task(self._commit())
        await self._outcome_of(task)

    async def rollback(self) -> None:
        """Undo what was sent, return what was given. Raises TransactionError ``already-committed`` when a cancelled ``commit()``
        had gone through after all."""
        if self._committing is not None:
            try:
                await self._outcome_of(self._committing)
            except TransactionError as error:
                if error.code == "outcome-unknown":
                    raise
            else:
                if self._is_empty():
                    raise TransactionError(
                        "already-committed", "the commit that was cancelled had gone through", "nothing is left to roll back"
                    )
        self._drop_unwritten("rollback() was called")
        await self._roll_back()

    async def quiet(self) -> None:
        """Wait until no COMMIT is out."""
        if self._committing is not None and not self._committing.done():
            await asyncio.wait([self._committing])

    async def _outcome_of(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait([task])  # unlike awaiting the task, cancelling this leaves it running
        if self._committing is task:
            self._committing = None
        task.result()

    # -- committing

    async def _commit(self) -> None:
        await self._written()
        if self.broken is not None:
            error = self.broken
            await self._roll_back()
            raise error
        if self._is_empty():
            return
        wire = self._connection.wire
        assert wire is not None  # a loss would have broken a transaction that is not empty
        self.holding = True
        try:
            await self._commit_on(wire)
        finally:
            self.holding = False
            for producer in self._session._producers:
                if producer._waiting and self._connection.wire is not None:
                    self._connection.wire.mark(producer)

    async def _commit_on(self, wire: Wire) -> None:
        covered: list[Message] = []
        for consumer in list(self._session._consumers.values()):
            covered += consumer._settlement.take_for_commit(wire, self.number)
        transaction_id = str(uuid.uuid4())
        future: asyncio.Future[Any] = self._connection.loop.create_future()
        wire.write(Op.COMMIT, self._connection.expect(Reply(TransactionError, future)), self.number, transaction_id, self.sends)
        self.sends = 0
        self._session._forget_closed_consumers()
        try:
            await future
        except ConnectionLost:
            await self._ask(transaction_id, covered)
        except HomingError:
            _mark(covered, State.RETURNED)
            await self._roll_back()  # so that what was handed to this side's window before the refusal is void on both sides
            raise
        _mark(covered, State.ACKNOWLEDGED)

    async def _ask(self, transaction_id: str, covered: list[Message]) -> None:
        """The answer to a COMMIT was lost: learn from the broker what became of it."""
        while True:
            try:
                answer = await self._connection.call("transaction-outcome", transaction_id=transaction_id)
                break
            except HomingError as error:
                if isinstance(error, ConnectionLost) and self._connection.may_return:
                    continue
                _mark(covered, State.LOST)
                raise TransactionError(
                    "outcome-unknown",
                    f"the connection was lost during commit {transaction_id}, and its outcome could not be asked for ({error.message})",
                    "call transaction-outcome with this id once the broker is back, before doing the work again",
                    connection_lost=True,
                ) from error
        if answer["outcome"] != "committed":
            _mark(covered, State.LOST)
            raise _rolled_back("the connection was lost before the broker had the commit", connection_lost=True)

    async def _written(self) -> None:
        """Everything sent so far is on the wire; credit may make it wait."""
        for producer in list(self._session._producers):
            while producer._waiting and self.broken is None:
                producer._usable()
                await producer._moved.wait()

    # -- rolling back

    async def _roll_back(self) -> None:
        self.broken = None
        self.sends = 0
        wire = self._connection.wire
        consumers = list(self._session._consumers.values())
        if wire is None:
            for consumer in consumers:
                consumer._settlement.void(State.LOST)
            return
        for consumer in consumers:
            consumer._void_until_rolled_back()
        self._session._forget_closed_consumers()

        def done(_: object) -> None:
            for consumer in consumers:
                consumer._rolled_back()

        future: asyncio.Future[Any] = self._connection.loop.create_future()
        wire.write(Op.ROLLBACK, self._connection.expect(Reply(TransactionError, future, done, done)), self.number)
        try:
            await future
        except ConnectionLost:
            return  # which rolled it back as well

    def _drop_unwritten(self, why: str) -> None:
        for producer in list(self._session._producers):
            producer._drop_waiting(_rolled_back(why))

    def _is_empty(self) -> bool:
        waiting = any(producer._waiting for producer in self._session._producers)
        return not waiting and not self.sends and not self._holds_messages()

    def _holds_messages(self) -> bool:
        return any(consumer._settlement.held for consumer in self._session._consumers.values())

    def _lost(self) -> None:
        """Called before consumers forget what they held."""
        if self.holding:
            return  # the commit asks for its outcome
        if self.broken is None and (self.sends or self._holds_messages()):
            self.broken = _rolled_back("its connection was lost", connection_lost=True)
            self._drop_unwritten("its connection was lost")
        self.sends = 0


def _mark(messages: list[Message], state: State) -> None:
    for message in messages:
        message._state = state
