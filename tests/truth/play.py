"""A workload through a real broker, with real clients that keep account."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from homing import client
from homing.client import AckMode, Connection, Message
from tests.process import Server
from tests.truth.account import Account, Between, Failure, now_us
from tests.truth.workload import ERRORS, FINAL, Consume, Expire, QueueSettings, Redrive, Restart, Retune, Send, Workload

#: What holds for dead-letter queues: their messages are drained long before the limit.
DEAD_LETTERS = QueueSettings(limit=10, delay_ms=5, records=10, dead="park")


class Play:
    def __init__(self, workload: Workload, directory: Path) -> None:
        self.workload = workload
        settings = {name: queue.as_yaml() for name, queue in workload.queues.items()}
        everywhere = {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True, "redelivery-delay": "5ms"}
        self.server = Server(directory, {"address-settings": {"#": everywhere, **settings}})
        self.account = Account()
        #: of each message, the plan of its deliveries that is left
        self._left: dict[int, str] = {}
        #: of messages with a time to live
        self._mortal: set[int] = set()
        self._settings = dict(workload.queues)
        self._client = self._version = ""

    async def run(self) -> Account:
        began = now_us()
        self.server.start()
        for queue, settings in self._settings.items():
            self.account.limits[queue] = [(settings.limit, Between.since(began))]
        for step in self.workload.steps:
            match step:
                case Send():
                    await self._send(step)
                case Consume():
                    await self._consume(step)
                case Expire():
                    await self._expire(step.queue)
                case Retune():
                    await self._retune(step)
                case Redrive():
                    await self._redrive(step.queue)
                case Restart():
                    self.server.kill() if step.kill else self.server.stop()
                    self.server.start()
        await self._look()
        return self.account

    async def _send(self, step: Send) -> None:
        async with client.connect(self.server.url) as connection, connection.session() as session:
            producer = session.producer(step.queue)
            for plan in step.plans:
                number = len(self._left)
                self._left[number] = plan
                if step.ttl_ms:
                    self._mortal.add(number)
                began = now_us()
                await producer.send(b"%d" % number, ttl_ms=step.ttl_ms)
                at = Between.since(began)
                self.account.enter(number, step.queue, at)
                self._trim(step.queue, at)

    def _trim(self, queue: str, at: Between) -> None:
        """drop-head: what is too much goes, the oldest first."""
        settings = self._settings[queue]
        while settings.length and len(waiting := self.account.ready(queue)) > settings.length:
            target = f"DLQ.{queue}" if settings.keeps_dead else None
            self.account.end(waiting[0], "dead-lettered" if target else "dropped", at, "maxlen", target)

    async def _expire(self, queue: str) -> None:
        mortal = [stay for stay in self.account.ready(queue) if stay.message in self._mortal]
        began = now_us()
        async with client.connect(self.server.url) as connection, connection.session() as session:
            gone = {stay.message for stay in mortal}
            # A look is as good as a sleep: it goes to the broker and back.
            while any([int(entry["body"]) in gone async for entry in session.browser(queue)]):
                pass
        for stay in mortal:
            self.account.end(stay, "expired", Between(stay.entered.low, Between.since(began).high), "expired")

    async def _retune(self, step: Retune) -> None:
        self._settings[step.queue] = settings = replace(self._settings[step.queue], limit=step.limit)
        self.server.config["address-settings"][step.queue] = settings.as_yaml()
        self.server.write_config()
        async with client.connect(self.server.url) as connection:
            began = now_us()
            await connection.call("reload")
        self.account.limits[step.queue].append((step.limit, Between.since(began)))

    async def _consume(self, step: Consume) -> None:
        queue = step.queue
        self._client, self._version = f"worker-{step.version}", step.version
        async with self._worker() as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = session.consumer(queue, prefetch=1)
            while self.account.ready(queue):
                began = now_us()
                message = await consumer.receive(timeout_ms=20_000)
                assert message is not None, f"{queue} does not hand out {self.account.here(queue)}"
                await self._answer(connection, queue, message, Between.since(began))

    def _worker(self) -> Connection:
        return client.connect(self.server.url, client_id=self._client, program_version=self._version)

    async def _answer(self, connection: Connection, queue: str, message: Message, given: Between) -> None:
        number = int(message.body)
        stay = self.account.at(number, queue)
        self.account.ids[number] = message.message_id
        answer, self._left[number] = self._left[number][:1], self._left[number][1:]
        if queue not in self.workload.queues:
            answer = answer.replace(FINAL, "T")
        began = now_us()
        if not answer:
            await message.acknowledge(confirm=True)
            self.account.end(stay, "succeeded", Between.since(began), client=self._client)
            return
        kind, text = ERRORS.get(answer, (RuntimeError, "order {} is no order"))
        error = kind(text.format(number))
        await message.nack(error=error, retryable=answer != FINAL)
        await connection.call("statistics")  # answered after what was sent before it
        at = Between.since(began)
        source = self._settings.get(queue, DEAD_LETTERS)
        stay.failures.append(Failure(at, given, kind.__name__, str(error), self._client, source.limit, source.records))
        dies = "not-retryable" if answer == FINAL else "delivery_limit" if len(stay.failures) >= source.limit else None
        if dies and source.keeps_dead:
            self.account.end(stay, "dead-lettered", at, dies, f"DLQ.{queue}")
        elif dies and source.dead == "drop":
            self.account.end(stay, "dropped", at, dies)
        elif dies:
            stay.parked = True

    async def _redrive(self, queue: str) -> None:
        if not (dead := self.account.here(queue)):
            return
        async with client.connect(self.server.url) as connection:
            began = now_us()
            await connection.call("redrive", queue=queue, message_ids=None)
            at = Between.since(began)
        for stay in dead:
            home = self.account.of(stay.message)[0].queue
            self.account.end(stay, "redriven", at, target=home)
            self._trim(home, at)

    async def _look(self) -> None:
        """What is left lies where the account has it."""
        async with client.connect(self.server.url) as connection, connection.session() as session:
            for queue in {stay.queue for stay in self.account.stays}:
                found = sorted([int(entry["body"]) async for entry in session.browser(queue)])
                assert found == sorted(stay.message for stay in self.account.here(queue)), queue
