"""8,310 durable messages, and all that a broker's life has: native, AMQP and transacted clients, an outage, poison, a time to live,
drop-head, killed consumers, kill -9 of the broker, a reload, redrives and drained dead-letter queues.
"""

from __future__ import annotations

from random import Random

from tests.truth.workload import FINAL, Consume, Expire, Kill, QueueSettings, Redrive, Restart, Retune, Send, Step, Workload

MESSAGES = 8_310
QUEUES = {
    "orders": QueueSettings(limit=4, delay_ms=20, records=10, dead="keep"),
    "payments": QueueSettings(limit=3, delay_ms=5, records=10, dead="keep"),
    "mails": QueueSettings(limit=3, delay_ms=0, records=2, dead="keep"),
    "warehouse": QueueSettings(limit=6, delay_ms=1_000, records=10, dead="keep"),
    "prices": QueueSettings(limit=2, delay_ms=5, records=10, dead="drop", length=40),
    "offers": QueueSettings(limit=2, delay_ms=5, records=10, dead="park", expired=True),
}


def workload(messages: int = MESSAGES, seed: int = 24) -> Workload:
    """The same with fewer messages, for the tests."""
    drawn = Random(seed)

    def plans(part: float, poison: str = "", failing: float = 0.0, tries: int = 1) -> tuple[str, ...]:
        """So large a part of all messages, one in 25 of them poison."""
        count = max(round(part * messages), 4)
        return tuple(poison if drawn.random() < 0.04 else "T" * tries * (drawn.random() < failing) for _ in range(count))

    steps: list[Step] = [
        Send("orders", plans(0.25, "V" * 8, 0.1), by="native"),
        Kill("orders", "native"),
        Consume("orders", ("1.0", "1.0", "1.1"), "native"),
        Send("payments", plans(0.15, FINAL, 0.1, 2), by="transacted"),
        Kill("payments", "transacted", broker=True),
        Consume("payments", ("2.0",), "transacted"),
        Send("mails", plans(0.2, "K" * 8, 0.2), by="amqp"),
        Kill("mails", "amqp"),
        Consume("mails", ("3.1", "3.2"), "amqp"),
        # What it depends on is down: everything fails, and succeeds when that is over.
        Send("warehouse", plans(0.12, "V" * 20, 1.0), by="amqp-tx"),
        Consume("warehouse", ("1.0",), "native"),
        Restart(kill=True),
        Send("prices", plans(0.08), by="native"),
        Consume("prices", ("1.0",), "amqp-tx"),
        Send("offers", ("",) * max(round(0.05 * messages), 4), ttl_ms=50),
        Expire("offers"),
        Send("offers", plans(0.03, "T" * 5), by="native"),
        Consume("offers", ("1.0",)),
        # More attempts from here on.
        Retune("orders", 6),
        Send("orders", plans(0.05, "V" * 8, 0.2, 2), by="native"),
        Consume("orders", ("1.1",)),
        Redrive("DLQ.orders", job=True),
        Consume("orders", ("1.2",)),
        Redrive("DLQ.payments"),
        Consume("payments", ("2.1",), "transacted"),
        Consume("DLQ.mails", ("1.0",), "amqp"),
        Restart(kill=False),
    ]
    # The rest, so that it is the number that was asked for.
    sent = sum(len(step.plans) for step in steps if isinstance(step, Send))
    return Workload(QUEUES, (*steps, Send("mails", ("",) * max(messages - sent, 0)), Consume("mails", ("3.2",), "native")))
