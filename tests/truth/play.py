"""A workload through a real broker, with real clients that keep account."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika

from homing import client
from homing.client import AckMode, Connection
from homing.client.errors import HomingError
from tests import amqp_support, fork_server
from tests.process import Server, wait_until
from tests.truth.account import AHEAD_US, Account, Between, Failure, Program, QueueEntry, now_us
from tests.truth.bounds import HOUR_US
from tests.truth.workers import HOST, KINDS, Delivery, Failing, Worker
from tests.truth.workload import (
    ERRORS,
    FINAL,
    HOLD,
    RULED,
    WAIT,
    Circle,
    Consume,
    Edit,
    Expire,
    Kill,
    Pause,
    QueueSettings,
    Quota,
    Redrive,
    Restart,
    Retry,
    Retune,
    Send,
    Workload,
)

#: What holds for dead-letter queues: their messages are drained long before the limit.
DEAD_LETTERS = QueueSettings(limit=10, delay_ms=5, records=10, dead="park")
LONG_MS = 3_600_000
#: A queue that nobody consumes, of a workload with messages that are not durable.
LEFT = "left"


@contextmanager
def full_is_said() -> Iterator[None]:
    """What comes by hand is refused where there is no room for it."""
    try:
        yield
    except HomingError as error:
        if error.code != "queue-full":
            raise


class Play:
    def __init__(self, workload: Workload, directory: Path, begins_us: Sequence[int] = (0, 0, 0)) -> None:
        """``begins_us``: how far ahead of this machine's clock the broker's is from the start on, and after each pause."""
        self.workload = workload
        self._begins_us = iter(begins_us if workload.takes_hours else (0,))
        settings = {name: queue.as_yaml() for name, queue in workload.queues.items()}
        everywhere = {
            "dead-letter-address": "DLA",
            "auto-create-dead-letter-resources": True,
            "redelivery-delay": "5ms",
            "keep-at-stop": False,
        }
        config = {**amqp_support.AMQP, "address-settings": {"#": everywhere, **settings}}
        if workload.history_hours:
            config["journal"] = {"history-retention": f"{workload.history_hours}h"}
        self.server = Server(directory, config)
        #: what was exported in between
        self.exports: list[Path] = []
        self.account = Account(
            delays={name: queue.delay_ms for name, queue in workload.queues.items()}, history_us=workload.history_hours * HOUR_US
        )
        #: of each message, the plan of its deliveries that is left
        self._left: dict[int, str] = {}
        #: of messages with a time to live
        self._mortal: set[int] = set()
        self._settings = dict(workload.queues)
        #: queue -> whether its last delivery failed
        self._last_failed: dict[str, bool] = {}

    async def run(self) -> Account:
        self._set_clock()
        began = now_us()
        self.server.start()
        for queue, settings in self._settings.items():
            self.account.limits[queue] = [(settings.limit, Between.since(began))]
        for step in self.workload.steps:
            match step:
                case Circle():
                    await self._circle(step)
                case Send():
                    await self._send(step)
                case Consume():
                    await self._consume(step)
                case Expire():
                    await self._expire(step.queue)
                case Kill():
                    await self._kill(step)
                case Retune():
                    await self._retune(step)
                case Redrive():
                    await self._redrive(step)
                case Edit():
                    await self._edit(step)
                case Quota():
                    await self._quota(step)
                case Retry():
                    await self._retry(step)
                case Pause():
                    await self._pause(step)
                case Restart():
                    self.server.kill() if step.kill else self._stop()
                    self.server.start()
        if self.workload.both_kinds:
            self._settings[LEFT] = DEAD_LETTERS
            await self._send(Send(LEFT, ("",) * 4))
        await self._look()
        # What is counted of messages that are not durable is written at the latest now.
        self._stop()
        return self.account

    def _stop(self) -> None:
        """What is not durable then, and has not failed, is gone."""
        began = now_us()
        self.server.stop()
        for entry in self.account.entries:
            if entry.outcome is None and entry.came == "sent" and not entry.failures and entry.message in self.account.passing:
                self.account.end(entry, "lost", Between.since(began))

    def _set_clock(self) -> None:
        AHEAD_US.set(ahead_us := next(self._begins_us))
        self.server.ahead_s = ahead_us / 1e6

    async def _pause(self, step: Pause) -> None:
        if step.export:
            self.exports.append(self._export())
        self.server.kill() if step.kill else self._stop()
        self._set_clock()
        began, logged = now_us(), len(self.server.log_path.read_text())
        self.server.start()
        for entry in self.account.entries:
            if entry.outcome is None and entry.waits and not entry.held:
                self.account.comes_back(entry)
        for name, settings in self._settings.items():
            for queue in (f"DLQ.{name}", f"EXP.{name}") if settings.dead_hours else ():
                going = self.account.here(queue)
                if going:
                    await asyncio.to_thread(self._wait_for, f"dead-letters-removed: queue {queue}: {len(going)} dead letter", logged)
                for entry in going:
                    self.account.end(entry, "dropped", Between.since(began), "dead-letter-retention")

    def _wait_for(self, line: str, after: int) -> None:
        wait_until(f"the log tells {line}", lambda: line in self.server.log_path.read_text()[after:])

    def _export(self) -> Path:
        own, out = self.server.directory, self.server.directory / f"export-{len(self.exports)}"
        arguments = ["journal", "export", "--data", str(self.server.data), "--out", str(out)]
        arguments += ["--since", str(self.exports[-1])] if self.exports else []
        environment = {**os.environ, fork_server.AHEAD: str(self.server.ahead_s)}
        done = fork_server.run(arguments, own, environment, None, 60, own)
        assert done.returncode == 0, done.stderr
        return out

    @property
    def archives(self) -> list[Path]:
        return sorted((self.server.data / "archive").glob("*"))

    def _connect(self) -> Connection:
        return client.connect(self.server.url, heartbeat_ms=0)

    async def _send(self, step: Send) -> None:
        numbers = range(len(self._left), len(self._left) + len(step.plans))
        self._left.update(zip(numbers, step.plans, strict=True))
        self.account.passing |= {number for number in numbers if self.workload.both_kinds and number % 2}
        self._mortal |= set(numbers) if step.ttl_ms else set()
        if step.by.startswith("amqp"):
            times = self._publish(step, numbers)
        else:
            times = await self._send_natively(step, numbers)
        for number, at in zip(numbers, times, strict=True):
            self.account.enter(number, step.queue, at)
            self._trim(step.queue, at)

    async def _learn(self, queue: str) -> dict[int, int]:
        """The broker's numbers of the messages there, which AMQP clients are not told, by those in the bodies."""
        async with self._connect() as connection, connection.session() as session:
            try:
                found = {int(entry["body"]): entry["message_id"] async for entry in session.browser(queue)}
            except HomingError as error:
                if error.code != "no-such-queue":  # it was empty for hours
                    raise
                found = {}
        self.account.ids = found | self.account.ids
        return found

    async def _send_natively(self, step: Send, numbers: range) -> list[Between]:
        times = []
        async with (
            self._connect() as connection,
            connection.session(AckMode.TRANSACTED if step.by == "transacted" else AckMode.AUTO) as session,
        ):
            producer = session.producer(step.queue)
            if step.by == "transacted":
                await producer.send(b"-1")
                await session.rollback()
            for number in numbers:
                began = now_us()
                await producer.send(b"%d" % number, ttl_ms=step.ttl_ms, durable=number not in self.account.passing)
                times.append(Between.since(began))
            if step.by == "transacted":
                await session.commit()
                # Sent one by one, and there with the commit.
                times = [Between(sent.low, now_us() + 1000) for sent in times]
        return times

    def _publish(self, step: Send, numbers: range) -> list[Between]:
        lasting, times = pika.BasicProperties(delivery_mode=2), []
        settings = self._settings[step.queue]
        arguments = {"x-delivery-limit": settings.limit - 1} if settings.declared else settings.arguments
        with amqp_support.channel(self.server) as channel:
            channel.queue_declare(step.queue, durable=True, arguments=arguments)
            transacted = step.by == "amqp-tx"
            if transacted:
                channel.tx_select()
                channel.basic_publish("", step.queue, b"-1", lasting)
                channel.tx_rollback()
            else:
                channel.confirm_delivery()
            for number in numbers:
                began = now_us()
                kept = number not in self.account.passing
                channel.basic_publish("", step.queue, b"%d" % number, lasting if kept else None)
                times.append(Between.since(began))
            if transacted:
                channel.tx_commit()
                # Sent one by one, and there with the commit.
                times = [Between(sent.low, now_us() + 1000) for sent in times]
        return times

    def _trim(self, queue: str, at: Between) -> None:
        """drop-head: what is too much goes, the oldest first."""
        settings = self._settings[queue]
        while settings.length and len(waiting := self.account.ready(queue)) > settings.length:
            target = settings.target(queue)
            oldest = next(iter(waiting.values()))
            self.account.end(oldest, "dead-lettered" if target else "dropped", at, "maxlen", target)

    def _has_room(self, queue: str) -> bool:
        """What comes back by hand pushes nothing out."""
        length = self._settings[queue].length
        return not length or len(self.account.ready(queue)) < length

    async def _expire(self, queue: str) -> None:
        mortal = [entry for entry in self.account.ready(queue).values() if entry.message in self._mortal]
        target = f"EXP.{queue}" if self._settings[queue].expired else None
        began = now_us()
        async with self._connect() as connection, connection.session() as session:
            gone = {entry.message for entry in mortal}
            # A look is as good as a sleep: it goes to the broker and back.
            while any([int(entry["body"]) in gone async for entry in session.browser(queue)]):
                pass
        for entry in mortal:
            self.account.end(entry, "expired", Between(entry.entered.low, Between.since(began).high), "expired", target)

    async def _retune(self, step: Retune) -> None:
        self._settings[step.queue] = settings = replace(self._settings[step.queue], limit=step.limit)
        self.account.limits[step.queue].append((step.limit, await self._reload(step.queue, settings.as_yaml())))

    async def _reload(self, queue: str, settings: dict[str, Any]) -> Between:
        self.server.config["address-settings"][queue] = settings
        self.server.write_config()
        async with self._connect() as connection:
            began = now_us()
            await connection.call("reload")
        return Between.since(began)

    async def _quota(self, step: Quota) -> None:
        settings, began = self._settings[step.queue], now_us()
        limits = {"dead-letter-quota": step.most, "dead-letter-archive": step.archive}
        await self._reload(step.queue, settings.as_yaml() | limits)
        for queue in (f"DLQ.{step.queue}", f"EXP.{step.queue}"):
            going = self.account.here(queue)[: -step.most]
            if going:
                await asyncio.to_thread(self.server.logged, f"dead-letters-removed: queue {queue}: {len(going)} dead letter")
            for entry in going:
                self.account.end(entry, "dropped", Between.since(began), "dead-letter-quota")
        await self._reload(step.queue, settings.as_yaml())

    async def _worker(self, queue: str, by: str, version: str, number: int = 0) -> Worker:
        program = Program(f"worker-{by}-{number}", version, HOST)
        return await KINDS[by](self.server, program).open(queue)

    async def _consume(self, step: Consume, also: str = "") -> None:
        """``also``: from where messages come back by themselves."""
        ready, coming = self.account.ready(step.queue), self.account.ready(also)
        if not ready:
            return
        await self._learn(step.queue)
        workers = [await self._worker(step.queue, step.by, version, number) for number, version in enumerate(step.versions)]
        asking = {asyncio.ensure_future(worker.get()): worker for worker in workers}
        try:
            while ready or coming:
                got, _ = await asyncio.wait(asking, timeout=30, return_when=asyncio.FIRST_COMPLETED)
                assert got, f"{step.queue} does not hand out {[*ready, *coming]}"
                for task in got:
                    worker = asking.pop(task)
                    await self._answer(step.queue, worker, await task)
                    asking[asyncio.ensure_future(worker.get())] = worker
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            for worker in workers:
                await worker.close()

    async def _answer(self, queue: str, worker: Worker, deliveries: Sequence[Delivery]) -> None:
        """As the first of them is planned to end; those that were given with it fare like it."""
        for delivery in deliveries:
            if delivery.number not in self.account.ready(queue):  # it has come back from where it waited
                waited = self.account.of(delivery.number)[-1]
                self.account.end(waited, "delayed", Between(waited.entered.low, delivery.assigned.high), "expired", queue)
        entries = [self.account.at(delivery.number, queue) for delivery in deliveries]
        plans = [self._left[delivery.number] for delivery in deliveries]
        for delivery in deliveries:
            self._left[delivery.number] = self._left[delivery.number][1:]
        failing, held_us = self._failing(queue, worker, plans[0][:1], deliveries[0].number), 0
        heard_us = None
        if plans[0][:1] == HOLD:
            await worker.answered()  # the broker knows that it was given
            began = now_us()
            await asyncio.sleep(0.01)
            held_us, heard_us = now_us() - began, began
        if self._last_failed.get(queue) != (failing is not None):
            await asyncio.sleep(0.004)  # so that the broker's clock tells which came first
        self._last_failed[queue] = failing is not None
        began = now_us()
        await worker.settle(deliveries, failing)
        at = Between.since(began)
        for entry, delivery in zip(entries, deliveries, strict=True):
            if failing is None:
                entry.assigned = delivery.assigned
                self.account.end(entry, "succeeded", at, by=worker.program)
            else:
                error, text = worker.reported(failing, last=delivery is deliveries[-1])
                given = Between(delivery.assigned.low, at.high if heard_us is None else heard_us + 1000)
                failure = Failure(at, delivery.assigned, given, error, text, worker.program, 0, 0, None, held_us)
                self._failed(entry, failure, failing, amqp=worker.amqp)

    def _failing(self, queue: str, worker: Worker, answer: str, number: int) -> Failing | None:
        if not answer:
            return None
        if queue not in self._settings or (answer == FINAL and "final" not in worker.says):
            answer = "T"
        if answer == FINAL:
            return Failing(RuntimeError(f"order {number} is no order"), final=True)
        if answer in RULED and worker.says and not worker.amqp and queue in self.workload.queues:
            return Failing(RULED[answer](f"order {number} is a case for a rule"), rule={"N": "no", "D": "gone", "L": "busy"}[answer])
        kind, text = ERRORS.get(answer, ERRORS["T"])
        return Failing(kind(text.format(number)), delay_ms=LONG_MS if answer == WAIT and "delay" in worker.says else None)

    def _failed(self, entry: QueueEntry, failure: Failure, failing: Failing | None, *, amqp: bool) -> None:
        source, delay_ms, dies = self._settings.get(entry.queue, DEAD_LETTERS), 0, None
        rule = failing.rule if failing else None
        if rule == "no":
            dies = "not-retryable"
        elif rule == "gone":
            dies = rule
        elif rule == "busy":
            dies, delay_ms = ("delivery_limit", 0) if len(entry.failures) > 0 else (None, 15)
        elif failing is not None and failing.final:
            dies = "rejected" if amqp else "not-retryable"
        elif 0 < source.limit <= len(entry.failures) + 1:
            dies = "delivery_limit"
        elif failing is not None and failing.delay_ms:
            delay_ms = failing.delay_ms
        elif entry.queue in self._settings or not amqp:  # what AMQP clients return comes back at once unless settings name a delay
            delay_ms = source.delay_ms
        due = failure.at.after(delay_ms) if delay_ms else None
        entry.failures.append(
            failure._replace(
                limit={"no": 1, "gone": 1, "busy": 2}.get(rule or "", source.limit), records=source.records, due=due, rule=rule
            )
        )
        if dies == "gone":
            self.account.end(entry, "dropped", failure.at, dies)
        elif dies and source.keeps_dead:
            outcome = "delayed" if source.arguments else "dead-lettered"  # a circle's: it only waits there
            self.account.end(entry, outcome, failure.at, dies, source.target(entry.queue))
        elif dies and source.dead == "drop":
            self.account.end(entry, "dropped", failure.at, dies)
        elif dies or delay_ms == LONG_MS:
            self.account.stays_for_long(entry, parked=bool(dies))

    async def _circle(self, step: Circle) -> None:
        there, back = ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name} for name in (step.waiting, step.queue))
        with amqp_support.channel(self.server) as channel:
            channel.queue_declare(step.queue, durable=True, arguments=there)
            channel.queue_declare(step.waiting, durable=True, arguments={**back, "x-message-ttl": 20})
        self._settings[step.queue] = QueueSettings(-1, 0, 10, "keep", dead_queue=step.waiting, arguments=there)
        self.account.delays[step.queue] = 0
        await self._send(Send(step.queue, tuple(FINAL * times for times in step.rejections), by="amqp"))
        await self._consume(Consume(step.queue, by="amqp"), also=step.waiting)

    async def _kill(self, step: Kill) -> None:
        if not self.account.ready(step.queue):
            return
        await self._learn(step.queue)
        worker = await self._worker(step.queue, step.by, "1.0")
        (delivery,) = await asyncio.wait_for(worker.get(most=1), 30)
        await worker.answered()  # the broker knows that it was given
        began = now_us()
        if step.broker:
            self.server.kill()
            await worker.cut()
            self.server.start()
            return
        await worker.cut()
        async with self._connect() as connection:
            while await connection.listing("consumers", queue=step.queue):
                pass
        at = Between.since(began)
        failure = Failure(
            at, delivery.assigned, Between(delivery.assigned.low, began + 1000), "connection-lost", None, worker.program, 0, 0
        )
        self._failed(self.account.at(delivery.number, step.queue), failure, None, amqp=worker.amqp)

    async def _redrive(self, step: Redrive) -> None:
        if not (dead := self.account.here(step.queue)):
            return
        async with self._connect() as connection:
            began = now_us()
            if step.job:
                await connection.redrive(step.queue, wait=True, stop_above=None)
            else:
                with full_is_said():
                    await connection.call("redrive", queue=step.queue, message_ids=None)
            at = Between.since(began)
        for entry in dead:
            home = self.account.of(entry.message)[0].queue
            if self._has_room(home):
                self.account.end(entry, "redriven", at, target=home)

    async def _edit(self, step: Edit) -> None:
        if not (dead := self.account.here(step.queue)):
            return
        found = await self._learn(step.queue)
        async with self._connect() as connection:
            for entry in dead:
                home, number = self.account.of(entry.message)[0].queue, len(self._left) if step.keep else entry.message
                began = now_us()
                body, said = b"%d" % number, {"edited": True}
                edited = 0
                with full_is_said():
                    edited = await connection.edit(
                        found[entry.message], queue=step.queue, body=body, properties=said, keep_original=step.keep
                    )
                at = Between.since(began)
                assert bool(edited) is self._has_room(home)
                if not edited:
                    continue
                self._left.setdefault(number, self._left[entry.message])
                if step.keep:
                    self.account.ids[number] = edited
                    self.account.enter(number, home, at, "moved")
                else:
                    self.account.end(entry, "edited", at, target=home)

    async def _retry(self, step: Retry) -> None:
        waiting = [entry for entry in self.account.here(step.queue) if entry.waits]
        async with self._connect() as connection:
            for how in ("hold", "release") if step.how == "release" else (step.how,):
                other: dict[str, Any] = {"at_ms": now_us() // 1000 + 20} if how == "at" else {how: True}
                assert await connection.retry(step.queue, **other) == len(waiting)
        if step.how == "hold":
            for entry in waiting:
                entry.held = True
        else:
            for entry in waiting:
                self.account.comes_back(entry)

    async def _look(self) -> None:
        """What is left lies where the account has it."""
        for queue in {entry.queue for entry in self.account.entries}:
            assert sorted(await self._learn(queue)) == sorted(entry.message for entry in self.account.here(queue)), queue
