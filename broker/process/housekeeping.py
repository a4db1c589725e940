"""What the broker looks at once a second: deliveries, consumers and transactions that take too long, queues and addresses that nobody uses,
what is parked, what was seen, and what has been kept for as long as the configuration says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.journal.contract import Outcome

from ..broker import Broker
from ..config.config import Config
from ..connection import Connection
from ..core import slow_consumer
from ..core.consumer import Consumer
from ..core.dead_letter import EXPIRED
from ..core.queue import Queue
from ..steps import LOOK_STEP, STEP, Steps

_SECOND_MS: Final = 1000


class Housekeeping:
    """``disk_low``: whether the disk is nearly full."""

    def __init__(self, broker: Broker, config: Config, disk_low: Callable[[], bool]) -> None:
        self._broker = broker
        self._parked_retry_ms, self._kept = config.broker.parked_retry_ms, config.journal
        self._disk_low = disk_low
        #: ``look`` is wanted then; what is parked is looked at then.
        self.next_ms = self._next_parked_ms = 0
        #: All queues are being looked at.
        self._sweeps = False

    def look(self, now_ms: int) -> None:
        self.next_ms = now_ms + _SECOND_MS
        broker = self._broker
        if not self._sweeps:
            self._sweeps = True
            broker.work.begin(broker.step_times.of("sweep", self._sweep()), self._swept)
        for queue, outcome in list(broker.office.parking.staying.items()):
            self._look_at_staying(queue, outcome)
        if broker.journal.busy():
            # Broker time goes along with what is written anyway; an idle broker writes nothing.
            broker.journal.batch.clock(now_ms)
        broker.fault_groups.record_seen(now_ms)
        broker.recorder.write_rounds()
        broker.recorder.transient.look(now_ms)
        if now_ms >= self._next_parked_ms:
            self._next_parked_ms = now_ms + self._parked_retry_ms
            broker.office.retry_parked()
            self._forget(now_ms)
        if broker.flow.waiting:
            broker.flow.relieve()
        broker.flow.look(now_ms)
        broker.users.look(now_ms)
        broker.events.disk(self._disk_low())
        broker.events.notes.came_back(broker.failing.returns, now_ms)
        broker.failing.returns.clear()
        broker.events.notes.look(now_ms)

    def _forget(self, now_ms: int) -> None:
        """What was kept for long enough."""
        broker = self._broker
        still_open = {(producer.client, producer.number) for producer in broker.flow.producers}
        for client, number in broker.high_watermarks.forget(now_ms - self._kept.marks_retention_ms, still_open):
            broker.journal.batch.forget_producer(f"{client}/{number}")
        broker.fault_groups.forget(now_ms - self._kept.history_retention_ms, broker.post_office.queues)

    def _sweep(self) -> Steps[None]:
        """All consumers and transactions, for what took too long, and all queues and addresses."""
        broker, now_ms, looks = self._broker, self._broker.now_ms, 0
        for connection in list(broker.connections.all.values()):
            for consumer in (*connection.consumers.values(), *connection.retired.values()):
                if late := broker.settlement.time_out(consumer, now_ms()):
                    connection.front_end.not_held(consumer, [each.tag for each in late])
                if why := slow_consumer.look(consumer, now_ms()):
                    self._is_slow(connection, consumer, why)
                looks += 1 + len(late) * (LOOK_STEP // STEP)
                if looks >= LOOK_STEP:
                    looks = 0
                    yield
            broker.transactions.time_out(connection, now_ms())
        yield from broker.deletion.sweep()

    def _swept(self, _: None) -> None:
        self._sweeps = False

    def _is_slow(self, connection: Connection, consumer: Consumer, why: str) -> None:
        self._broker.events.slow(consumer, why)
        if connection.open and consumer.queue.settings.slow_consumer_policy == "kill":
            self._broker.connections.end(connection, "connection-closed", f"its consumer of queue {consumer.queue.name} is slow: {why}")

    def _look_at_staying(self, queue: Queue, outcome: Outcome) -> None:
        """One that stays beyond its end ends as soon as nothing is parked in it, unless somebody uses it again."""
        broker = self._broker
        if queue.consumers or (outcome == EXPIRED and broker.resources.idle.in_use(queue, broker.now_ms())):
            del broker.office.parking.staying[queue]
            broker.resources.idle.watch(queue)
        else:
            broker.removal.end(queue, outcome)

    def weigh_declared(self) -> None:
        """What is declared, as it is now. About twice a second."""
        self._broker.declared.weigh(self._count_declared())

    def _count_declared(self) -> dict[str, int]:
        broker = self._broker
        connections, hosts = broker.connections.all.values(), broker.virtual_hosts.all()
        consumers = [consumer for each in connections for consumer in (*each.consumers.values(), *each.retired.values())]
        exchanges = [exchange for host in hosts for exchange in host.exchanges.exchanges.values()]
        return {
            "queues": len(broker.post_office.queues),
            "addresses": len(broker.post_office.addresses),
            "virtual hosts": len(hosts) - 1,
            "exchanges": sum([not exchange.predeclared for exchange in exchanges]),
            "consumers": len(consumers),
            "selectors": sum([len(each.selector.text) for each in consumers if each.selector is not None]),
            "producers": sum([len(each.producers) for each in connections]),
            "high watermarks": broker.high_watermarks.count,
            "clients with high watermarks": broker.high_watermarks.clients,
            "bindings": sum([len(exchange.bindings) for exchange in exchanges]),
            "nodes of topic patterns": sum([exchange.nodes for exchange in exchanges]),
            "duplicate ids": broker.duplicate_ids.number,
            "characters of duplicate ids": broker.duplicate_ids.characters,
        }
