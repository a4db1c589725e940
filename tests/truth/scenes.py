"""What can be planted: each with the kinds of finding that name it, from the plan alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import aio_pika

from tests.truth.causes import HOURS, Fails, Order, Play, Program, Scene, World

#: Messages that never succeed: that they are poison, and that trying again is of no use, are one answer.
POISON = frozenset({"poison", "not-retryable"})
RETRIES = {"redelivery-delay": "2m", "redelivery-delay-multiplier": 2, "max-delivery-attempts": 6}


def fleet(rng: Random, client: str = "orders", version: str = "1.0", least: int = 2) -> list[Program]:
    return [Program(client, f"{client}-{number}", version) for number in range(rng.randint(least, 6))]


def span(rng: Random, least_h: float = 6, most_h: float = 20) -> tuple[float, float]:
    long = rng.uniform(least_h, most_h)
    begin = rng.uniform(0.2, HOURS - long - 4)
    return begin, begin + long


def slips(scene: Scene, part: float) -> Fails:
    """Now and then an attempt fails; the next one is as good as any."""

    def fails(order: Order, program: Program) -> Exception | None:
        return TimeoutError(f"no answer for order {order.number} in 30 s") if scene.luck(order.number, order.attempt) < part else None

    return fails


async def healthy(world: World, scene: Scene) -> None:
    begin, end = span(scene.rng)
    fails = slips(scene, scene.rng.choice([0.0, 0.02, 0.2]))
    await world.until(begin)
    async with world.working(scene, fleet(scene.rng, least=1), fails):
        await world.traffic(scene, begin, end, scene.rng.randint(150, 400))
        await world.until(end + 2)


async def waiting(world: World, scene: Scene) -> None:
    """RabbitMQ's retry: what is rejected waits in a queue without consumers until it expires there, and comes back."""
    begin, end = span(scene.rng, 2, 6)
    await world.until(begin)
    number, delayed = scene.queue, scene.rng.random() < 0.5
    async with world.channel() as channel:
        there, back = ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name} for name in (f"{number}.wait", number))
        queue = await channel.declare_queue(number, durable=True, arguments=there)
        await channel.declare_queue(f"{number}.wait", durable=True, arguments={**back, "x-message-ttl": 120_000})
        tries: dict[bytes, int] = {}

        async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            tries[message.body] = tries.get(message.body, 0) + 1
            if tries[message.body] <= (0 if delayed else int(message.body) % 4):
                await message.reject(requeue=False)
            else:
                await message.ack()

        await queue.consume(handle)
        for step in range(20):
            await world.until(begin + (end - begin) * step / 20)
            for message in range(step * 5, step * 5 + 5):
                body = aio_pika.Message(b"%d" % message, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(body, routing_key=f"{number}.wait" if delayed else number)
        await world.until(end + 1)


async def nightly(world: World, scene: Scene) -> None:
    """A batch each night, of which a part fails as in every night before."""
    hour, count, part = scene.rng.uniform(1, 8), scene.rng.randint(40, 120), scene.rng.uniform(0.3, 0.6)

    def fails(order: Order, program: Program) -> Exception | None:
        locked = order.attempt == 1 and scene.luck(order.number) < part
        return ConnectionAbortedError(f"order {order.number} is locked") if locked else None

    async with world.working(scene, fleet(scene.rng, least=1), fails):
        for night in range(HOURS // 24):
            await world.until(24 * night + hour)
            await world.send(scene, night * count, count)
        await world.until(HOURS - 0.5)


async def rollout(world: World, scene: Scene) -> None:
    """Host after host gets another version, which is no worse."""
    begin, end = span(scene.rng)
    before = fleet(scene.rng, version="1.0")
    fails = slips(scene, scene.rng.uniform(0.05, 0.2))
    await world.until(begin)
    messages, after = scene.rng.randint(300, 500), [Program(each.client, each.host, "1.1") for each in before]
    part = (end - begin) / (len(before) + 1)
    for number in range(len(before) + 1):
        first, last = (messages * each // (len(before) + 1) for each in (number, number + 1))
        async with world.working(scene, after[:number] + before[number:], fails):
            for step in range(10):
                await world.until(begin + part * (number + step / 10))
                sent, upto = (first + (last - first) * each // 10 for each in (step, step + 1))
                await world.send(scene, sent, upto - sent)
            await world.until(begin + part * (number + 0.98))
    async with world.working(scene, after, fails):
        await world.until(end + 2)


async def redriven(world: World, scene: Scene) -> None:
    """What a customer's missing record killed is sent back when that is there, and succeeds."""
    begin, end = span(scene.rng)
    mended, part = end + 1, scene.rng.uniform(0.1, 0.5)

    def fails(order: Order, program: Program) -> Exception | None:
        return KeyError(f"customer {order.number}") if order.hour < mended and scene.luck(order.number) < part else None

    await world.until(begin)
    async with world.working(scene, fleet(scene.rng, least=1), fails):
        await world.traffic(scene, begin, end, scene.rng.randint(100, 250))
        await world.until(mended + 1)
        await world.redrive(scene)
        await world.until(mended + 2)


async def redriven_in_vain(world: World, scene: Scene) -> None:
    """Poison, sent back, fails and dies again."""
    begin, end = span(scene.rng)
    part = scene.rng.uniform(0.05, 0.3)

    def fails(order: Order, program: Program) -> Exception | None:
        return KeyError(f"customer {order.number}") if scene.luck(order.number) < part else None

    await world.until(begin)
    programs = fleet(scene.rng)
    async with world.working(scene, programs, fails):
        await world.traffic(scene, begin, end, scene.rng.randint(150, 250))
        await world.until(end + 1.5)
    # By one program, of another version, or by all of them again.
    again = scene.rng.choice([programs, [Program("orders", programs[0].host, "1.1")]])
    async with world.working(scene, again, fails):
        await world.redrive(scene)
        await world.until(end + 3)


async def poison(world: World, scene: Scene) -> None:
    """Some customers' orders never succeed."""
    begin, end = span(scene.rng)
    keys, messages = set(scene.rng.sample(range(20), scene.rng.randint(1, 4))), scene.rng.randint(200, 400)
    scene.dies_of_more = sum(number % 20 in keys for number in range(messages))

    def fails(order: Order, program: Program) -> Exception | None:
        return ValueError(f"order {order.number} has no price") if order.key in keys else slips(scene, 0.02)(order, program)

    await world.until(begin)
    async with world.working(scene, fleet(scene.rng, least=1), fails):
        await world.traffic(scene, begin, end, messages)
        await world.until(end + 2)


async def ten(world: World, scene: Scene) -> None:
    """Ten messages, of which none ever succeeds."""
    scene.dies_of_more = 10
    await world.until(30)
    async with world.working(scene, fleet(scene.rng), lambda order, _: ValueError(f"order {order.number} has no price")):
        await world.send(scene, 0, 10)
        await world.until(34)


async def outage(world: World, scene: Scene) -> None:
    """What all depend on is away for a while; what died of it is sent back or not."""
    begin, end = span(scene.rng, 5, 12)
    down = begin + (end - begin) * scene.rng.uniform(0.2, 0.6)
    up = down + scene.rng.uniform(0.25, 1.2)
    tidy = scene.rng.random() < 0.5

    def fails(order: Order, program: Program) -> Exception | None:
        return ConnectionError("no connection to the warehouse") if down <= order.hour < up else slips(scene, 0.02)(order, program)

    await world.until(begin)
    async with world.working(scene, fleet(scene.rng), fails):
        await world.traffic(scene, begin, end, round((end - begin) * scene.rng.randint(40, 80)))
        await world.until(end + 1)
        if tidy and scene.settings["max-delivery-attempts"] < 10:
            await world.redrive(scene)
        await world.until(end + 2)


async def suspect(world: World, scene: Scene) -> None:
    """Of programs that are there at the same time some fail: those of one host, of one version, or of one name."""
    begin, end = span(scene.rng)
    part, base = scene.rng.uniform(0.3, 0.9), scene.rng.choice([0.0, 0.05])
    programs = fleet(scene.rng, least=3)
    match scene.name:
        case "bad-host":
            bad = {programs[0]}
        case "bad-release":
            number = scene.rng.randint(1, len(programs) - 1)
            programs = [Program(each.client, each.host, "3.2" if at < number else "3.1") for at, each in enumerate(programs)]
            bad = set(programs[:number])
        case _:
            others = fleet(scene.rng, "billing", "1.0", 2)
            scene.amqp = True
            programs, bad = programs + others, set(others)
    scene.names = {"bad-host": "orders-0", "bad-release": "3.2"}.get(scene.name, "billing")

    def fails(order: Order, program: Program) -> Exception | None:
        if program in bad and scene.luck(order.number, order.attempt, "bad") < part:
            return TypeError("unsupported operand type(s) for +: 'int' and 'str'")
        return slips(scene, base)(order, program)

    await world.until(begin)
    async with world.working(scene, programs, fails):
        await world.traffic(scene, begin, end, scene.rng.randint(250, 500))
        await world.until(end + 2)


async def new_fault(world: World, scene: Scene) -> None:
    """Since a while ago a part of all messages fails at first, everywhere."""
    begin, since = scene.rng.uniform(1, 10), scene.rng.uniform(0.8, 0.88) * HOURS
    part = scene.rng.uniform(0.15, 0.4)

    def fails(order: Order, program: Program) -> Exception | None:
        met = order.hour >= since and order.attempt == 1 and scene.luck(order.number) < part
        return PermissionError("token is not valid yet") if met else slips(scene, 0.03)(order, program)

    await world.until(begin)
    async with world.working(scene, fleet(scene.rng, least=1), fails):
        await world.traffic(scene, begin, HOURS - 2, 800)
        await world.until(HOURS - 1)


async def too_early(world: World, scene: Scene) -> None:
    """What each message waits for takes longer than the settings try, for a part of them, and half an hour at most."""
    begin, end = span(scene.rng)
    scene.dies_of_more = 0

    def fails(order: Order, program: Program) -> Exception | None:
        ready_h = begin + (end - begin) * order.number / 300 + scene.luck(order.number) * 0.5
        return LookupError(f"stock of order {order.number} is not booked yet") if order.hour < ready_h else None

    await world.until(begin)
    async with world.working(scene, fleet(scene.rng), fails):
        await world.traffic(scene, begin, end, 300)
        await world.until(end + 2)


TEN = {"redelivery-delay": "2m", "redelivery-delay-multiplier": 2, "max-delivery-attempts": 3}
#: name -> what is played, the answer, and the queue's settings
KINDS: dict[str, tuple[Play, frozenset[str], dict[str, object]]] = {
    "healthy": (healthy, frozenset(), RETRIES),
    "waiting": (waiting, frozenset(), {}),
    "nightly": (nightly, frozenset(), RETRIES),
    "rollout": (rollout, frozenset(), RETRIES),
    "redriven": (redriven, frozenset(), {"redelivery-delay": "2m", "max-delivery-attempts": 3}),
    "in-vain": (redriven_in_vain, POISON, {"redelivery-delay": "2m", "max-delivery-attempts": 4}),
    "poison": (poison, POISON, RETRIES),
    "outage": (outage, frozenset({"outage"}), RETRIES),
    "bad-host": (suspect, frozenset({"suspect-host"}), RETRIES),
    "bad-release": (suspect, frozenset({"suspect-release"}), RETRIES),
    "bad-client": (suspect, frozenset({"suspect-client"}), RETRIES),
    "new-fault": (new_fault, frozenset({"new-fault"}), RETRIES),
    "too-early": (too_early, frozenset({"longer"}), {"redelivery-delay": "4m", "max-delivery-attempts": 8}),
}
#: Beside those that are drawn.
TEN_MESSAGES = Scene(0, "ten", POISON, settings=TEN), ten
#: Outages that all survive, and those that kill.
OUTAGES = ({"redelivery-delay": "4m", "max-delivery-attempts": -1}, {"redelivery-delay": "2m", "max-delivery-attempts": 3})


def drawn(count: int, first: int = 0) -> list[tuple[Scene, Play]]:
    """So many scenes, of all kinds in turn."""
    found: list[tuple[Scene, Play]] = []
    for number in range(first, first + count):
        name = list(KINDS)[number % len(KINDS)]
        play, wanted, settings = KINDS[name]
        scene = Scene(number, name, wanted, settings=dict(settings))
        if name == "outage":
            scene.settings = dict(scene.rng.choice(OUTAGES))
        found.append((scene, play))
    return found


class Verdict(NamedTuple):
    """How many causes there were to find; those that do not come first, and whatever else is found."""

    planted: int
    missed: list[str]
    false_alarms: list[str]

    def __str__(self) -> str:
        found = f"{self.planted - len(self.missed)} of {self.planted} causes found first, {len(self.false_alarms)} false alarms"
        return "\n".join((found, *self.missed, *self.false_alarms))


def judged(scenes: list[Scene], findings: Sequence[Mapping[str, Any]]) -> Verdict:
    """What is over is no alarm."""
    verdict = Verdict(sum(bool(scene.wanted) for scene in scenes), [], [])
    for scene in scenes:
        mine = [each for each in findings if scene.owns(each["queue"]) and not each["over"]]
        told = [f"{each['kind']}: {each['text']}" for each in mine]
        if scene.wanted and not (mine and mine[0]["kind"] in scene.wanted and scene.names in mine[0]["text"]):
            verdict.missed.append(f"missed {scene.queue}, {' or '.join(sorted(scene.wanted))} {scene.names}: {told[:3]}")
        for each in mine:
            if each["kind"] not in scene.wanted or each is not mine[0]:
                verdict.false_alarms.append(f"false alarm in {scene.queue}, {each['kind']}: {each['text']}")
    return verdict
