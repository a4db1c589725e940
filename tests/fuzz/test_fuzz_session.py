"""Random frames into a whole broker in this process: whatever comes, only ProtocolError may escape a session, what is recorded stays such
that the journal can write them, and another client's messages stay where they are.

``scripts/fuzz SECONDS`` runs this for as long as it is told, from a fresh seed that it prints; HOMING_SEED repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

from homing.broker.management.calls import Calls
from homing.broker.process.making import make_broker
from homing.broker.protocols.native.codec import FrameDecoder, Op, ProtocolError, encode
from homing.broker.protocols.native.session import NativeOptions, NativeSession
from tests import inside
from tests.faults.hostile import check_words
from tests.fuzz.journal_words import check_batch
from tests.fuzz.native_frames import Frames
from tests.model.world import DictJournal
from tests.session_support import FrameTransport, NoProcess

SECONDS = float(os.environ.get("HOMING_FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("HOMING_SEED", "20261121"))


class House:
    """A broker, a good client's messages in it, and hostile sessions that come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.frames = Frames(self.chance, self.next_sequence)
        self.journal = DictJournal()
        self.now_ms = 1_800_000_000_000
        config = inside.configured({"#": {"redelivery-delay": 5}})
        self.broker = make_broker(self.journal, config, lambda: self.now_ms, random.Random(seed), lambda: None)
        self.loop = inside.turn_of(self.broker, config)
        self.calls = Calls(self.broker, NoProcess())
        good, socket = self.session()
        good.receive([[Op.PRODUCER, 1, 1, "good"]])
        self.turn()
        good.receive([[Op.SEND, 1, 1, [[b"good%d" % n] for n in range(20)]]])
        self.turn()
        assert [Op.CONFIRM, 1, 20] in socket.frames
        self.hostile, self.socket = self.session()

    def session(self) -> tuple[NativeSession, FrameTransport]:
        socket = FrameTransport()
        session = NativeSession(self.broker, socket, NativeOptions("id", "fuzz"), lambda user, password, done: done(""), self.calls.run)
        session.receive(
            [[Op.HELLO, "homing", 1, {"client_id": f"c{self.chance.randrange(1 << 60)}", "joins_bodies": self.chance.random() < 0.5}]]
        )
        assert socket.frames[-1][0] == Op.WELCOME
        return session, socket

    def turn(self) -> None:
        """One turn of the loop: dispatch, what is due, and a commit, whose records must be such as SQLite takes."""
        self.now_ms += self.chance.choice((0, 1, 10, 2000))
        self.loop.drain()
        self.loop.tick()
        check_batch(self.journal.batch)
        self.journal.commit()

    async def step(self) -> None:
        frames = [self.frames.frame() for _ in range(self.chance.choice((1, 1, 2, 5)))]
        try:
            self.hostile.receive([frame for each in frames for frame in FrameDecoder().feed(encode(each))])
        except ProtocolError as error:
            self.hostile.broken(error)
            if not self.socket.frames:
                raise
            check_words(self.socket.frames[-1][1:])
        self.turn()
        await asyncio.sleep(0)  # calls that work in steps, and reads of the journal, go on in the loop
        assert not any("internal-error" in frame for frame in self.socket.frames)
        if self.socket.ended or self.chance.random() < 0.01:
            self.hostile.lost()
            self.hostile, self.socket = self.session()
        self.socket.frames.clear()

    def next_sequence(self) -> int:
        connection = self.hostile._connection
        producer = connection.producers.get(1) if connection is not None else None
        return producer.high_watermark + 1 if producer is not None else 1

    def check(self) -> None:
        queue = inside.queues(self.broker).get("good")
        if queue is not None:
            bodies = [each.message.body for each in queue.references.values() if each.message.body.startswith(b"good")]
            assert bodies == [b"good%d" % n for n in range(20)]
        for queue in inside.queues(self.broker).values():
            for reference in queue.references.values():
                consumer = reference.consumer
                assert (
                    consumer is None
                    or (consumer.unsettled[reference.tag] is reference and consumer in queue.consumers)
                    or consumer.transacted
                )
        assert inside.memory(self.broker).charged >= 0


async def test_nothing_a_client_sends_breaks_the_broker() -> None:
    print(f"seed {SEED}, {SECONDS:g} s; HOMING_SEED={SEED} repeats it")
    end = time.monotonic() + SECONDS
    houses = 0
    while not houses or time.monotonic() < end:
        seed = SEED + houses
        house = House(seed)
        steps = 0
        try:
            for steps in range(150):  # noqa: B007
                await house.step()
            house.check()
        except Exception as error:
            error.add_note(f"house {seed}, step {steps}")
            raise
        houses += 1
    print(f"{houses} houses of 150 steps")
