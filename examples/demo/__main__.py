"""The story that ``scripts/demo`` tells. Exits 0 when every check of the account holds, 1 when one does not."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from examples.demo import show
from examples.demo.account import DLQ_PREFIX, client_account, export_account, read_logs, verdict
from examples.demo.events import Event, read_events, sample_events
from examples.demo.processes import PLAIN_WIDTH, ROOT, DemoBroker, DemoError, Process, homing
from examples.demo.service import FilingService
from homing import client
from homing.client import AckMode

console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)

DEFAULT_OUT: Final = ROOT / "build" / "demo"
MARKER: Final = ".homing-demo"
#: How long the service is down after the workers began.
OUTAGE_S: Final = 2.5
#: Nothing takes longer unless something is wrong.
PATIENCE_S: Final = 120.0


class Demo:
    """One run: its processes, its logs, what is known so far."""

    def __init__(self, out: Path, events: list[Event]) -> None:
        self.out = out
        self.events = events
        self.broker = DemoBroker(out)
        self.service = FilingService()
        self.workers: dict[str, Process] = {}
        self.sent: set[int] = set()

    @property
    def logs(self) -> list[Path]:
        return sorted(self.out.glob("worker-*.jsonl"))

    # -- the steps ---------------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Every line as a durable message; a line counts as sent once the broker has confirmed it."""
        async with client.connect(self.broker.url) as connection, connection.session(AckMode.AUTO) as session:
            producers = {address: session.producer(address) for address in sorted({event.address for event in self.events})}
            confirmations = [
                (event.line, producers[event.address].send_nowait(event.body, properties={"line": event.line})) for event in self.events
            ]
            for line, confirmation in confirmations:
                await confirmation
                self.sent.add(line)

    def queues_of(self, mode: AckMode) -> list[str]:
        """Each mode gets its share of the queues, in such a way that each has about as many messages as the others."""
        load = dict.fromkeys(AckMode, 0)
        shares: dict[AckMode, list[str]] = {each: [] for each in AckMode}
        counts: dict[str, int] = {}
        for event in self.events:
            counts[event.address] = counts.get(event.address, 0) + 1
        for address, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            lightest = min(AckMode, key=lambda each: (load[each], each.name))
            shares[lightest].append(address)
            load[lightest] += count
        return shares[mode]

    def start_worker(self, mode: AckMode, *, hold: bool = False) -> Process | None:
        queues = self.queues_of(mode)
        if not queues:
            return None
        name = f"{mode.name.lower()}{'-killed' if hold else ''}"
        arguments = [mode.name, self.broker.url, str(self.service.port), str(self.out / f"worker-{name}.jsonl"), *queues]
        worker = Process(self.out / "workers.log", "-m", "examples.demo.worker", *arguments, *(["--hold"] if hold else []))
        self.workers[name] = worker
        return worker

    def entries(self) -> list[dict[str, Any]]:
        return read_logs(self.logs)

    def settled(self) -> tuple[int, int]:
        """(succeeded, dead-lettered) so far; the second is asked of the broker, and 0 while it does not answer."""
        succeeded = len({entry["line"] for entry in self.entries() if entry["what"] == "handled"})
        try:
            return succeeded, asyncio.run(self._dead_letters())
        except client.HomingError:
            return succeeded, 0

    async def _queues(self) -> list[dict[str, Any]]:
        async with client.connect(self.broker.url, reconnect=False) as connection:
            found: list[dict[str, Any]] = await connection.listing("queues")
            return found

    async def _dead_letters(self) -> int:
        return sum(queue["messages"] for queue in await self._queues() if queue["name"].startswith(DLQ_PREFIX))

    async def left(self) -> int:
        """Messages anywhere but in dead-letter queues."""
        return sum(queue["messages"] for queue in await self._queues() if not queue["name"].startswith(DLQ_PREFIX))

    async def dead(self) -> dict[int, int]:
        """line -> message id of everything in a dead-letter queue."""
        found: dict[int, int] = {}
        async with client.connect(self.broker.url, reconnect=False) as connection:
            for queue in await connection.listing("queues"):
                if not queue["name"].startswith(DLQ_PREFIX):
                    continue
                after = None
                while True:
                    page = await connection.call("peek", queue=queue["name"], limit=500, after=after)
                    found |= {message["properties"]["line"]: message["message_id"] for message in page["messages"]}
                    after = page["next"]
                    if after is None:
                        break
        return found

    def close(self) -> None:
        for worker in self.workers.values():
            worker.end(signal.SIGKILL)
        self.service.close()


def wait_until(what: str, holds: Any, pause_s: float = 0.1) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise DemoError(f"waited {PATIENCE_S:.0f} s in vain until {what}")
        time.sleep(pause_s)


def tell(demo: Demo) -> bool:
    """The whole story; whether its account holds."""
    show.title(console, len(demo.events))
    demo.broker.start()
    show.step(console, "A broker", f"runs as process {demo.broker.pid}, its journal in {show.path(demo.broker.data)}")
    asyncio.run(demo.publish())
    addresses = {event.address for event in demo.events}
    show.step(console, "Published", f"{len(demo.sent)} durable messages to {len(addresses)} addresses, all confirmed: they are on disk")
    lose_a_worker(demo)
    fail_and_recover(demo)
    wait_until_settled(demo)
    dead = asyncio.run(demo.dead())
    stop_workers(demo)
    holds = report(demo, dead)
    demo.broker.stop()
    return holds


def lose_a_worker(demo: Demo) -> None:
    """A process takes messages and is killed while it holds them."""
    worker = demo.start_worker(AckMode.INDIVIDUAL, hold=True)
    if worker is None:
        return
    log = demo.out / "worker-individual-killed.jsonl"
    wait_until("the first worker holds messages", lambda: log.exists() and log.read_text().count("\n") >= 3)
    time.sleep(0.5)
    worker.end(signal.SIGKILL)
    held = len(read_logs([log]))
    show.step(console, "A consumer died", f"process {worker.pid} was killed with {held} messages in its hands; they go back, counted")


def fail_and_recover(demo: Demo) -> None:
    """All five modes at work against a service that is down; then it comes up; then the broker is killed half way."""
    shares = {mode.name: len(demo.queues_of(mode)) for mode in AckMode}
    for mode in AckMode:
        demo.start_worker(mode)
    of_each = ", ".join(f"{name} ({queues} {'queue' if queues == 1 else 'queues'})" for name, queues in shares.items())
    show.step(console, "Five consumers", f"one for each ack mode: {of_each}")
    wait_until("a handler failed", lambda: any(entry["what"] == "failed" for entry in demo.entries()))
    time.sleep(OUTAGE_S)
    failed = sum(entry["what"] == "failed" for entry in demo.entries())
    show.step(console, "The service is down", f"{failed} handlers have failed on it so far; their messages wait, each for its own time")
    demo.service.come_up()
    show.step(console, "The service is up", "after a while of 503 answers with Retry-After")
    half = len(demo.sent) // 2
    wait_until("half of the messages have succeeded", lambda: demo.settled()[0] >= min(half, demo_reachable(demo)), 0.02)
    killed = demo.broker.pid
    demo.broker.kill()
    succeeded = demo.settled()[0]
    show.step(console, "kill -9", f"the broker, process {killed}, is dead; {succeeded} of {len(demo.sent)} had succeeded")
    demo.broker.start()
    show.step(
        console, "Back again", f"as process {demo.broker.pid}; the consumers find it by themselves, counts and due times are as before"
    )


def demo_reachable(demo: Demo) -> int:
    """How many messages can succeed at all: those of events that speak of a repository. At least one, so that waiting makes sense."""
    return max(1, sum(event.about_repository for event in demo.events))


def wait_until_settled(demo: Demo) -> None:
    with show.progress(console) as bar:
        task = bar.add_task("waiting until all is settled", total=len(demo.sent))

        def all_settled() -> bool:
            gone = [name for name, worker in demo.workers.items() if not worker.running and not name.endswith("-killed")]
            if gone:
                raise DemoError(f"the worker {gone[0]} has ended by itself; see {demo.out / 'workers.log'}")
            succeeded, dead = demo.settled()
            bar.update(task, completed=succeeded + dead, description=f"{succeeded} succeeded, {dead} dead-lettered, the others wait")
            return succeeded + dead >= len(demo.sent) and asyncio.run(demo.left()) == 0

        wait_until("all is settled", all_settled, 0.25)


def stop_workers(demo: Demo) -> None:
    for name, worker in demo.workers.items():
        if worker.running:
            code = worker.end()
            if code != 0:
                raise DemoError(f"the worker {name} ended with exit code {code}; see {demo.out / 'workers.log'}")


def report(demo: Demo, dead: dict[int, int]) -> bool:
    """History, export, account, analysis; whether the account holds."""
    if dead:
        console.rule("[bold]One dead letter tells its story[/]", align="left", style="dim")
        console.print(f"[dim]$ homing history {min(dead.values())}[/]\n")
        homing("history", str(min(dead.values())), url=demo.broker.url)
        console.print()
    dump, pages = demo.out / "export", demo.out / "report"
    homing("journal", "export", "--data", str(demo.broker.data), "--out", str(dump), "--json", quiet=True)
    clients, export = client_account(demo.sent, demo.entries()), export_account(dump)
    checks = verdict(clients, set(dead), export)
    show.account(console, clients, export, dead, demo.service)
    show.checks(console, checks)
    with console.status("analysing the export with Spark"):
        homing("analyze", str(dump), "--out", str(pages), "--json", quiet=True)
    console.print(f"\nThe report: [bold]{escape(str(pages / 'report.html'))}[/]", soft_wrap=True)
    again = escape(f"homing serve --data {shlex.quote(str(demo.broker.data))}")
    console.print(
        f"What failed, in a browser: [bold]{again}[/], then http://127.0.0.1:15672, as guest with the password guest", soft_wrap=True
    )
    console.print(f"[dim]Journal, logs and export are beside it, in {escape(str(demo.out))}[/]", soft_wrap=True)
    return all(check.holds for check in checks)


def fresh(out: Path) -> Path:
    """An empty directory for this run. Only one that an earlier run made is emptied."""
    if out.exists() and any(out.iterdir()) and not (out / MARKER).exists():
        raise DemoError(f"{out} is there and was not made by this demo; name another directory with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARKER).touch()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Messages fail, wait, come back, and are accounted for.")
    parser.add_argument("--input", type=Path, metavar="FILE.jsonl", help="one message a line; default: a sample made here")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where everything goes (default: build/demo)")
    arguments = parser.parse_args()
    demo = None
    began = time.monotonic()
    try:
        events = read_events(arguments.input) if arguments.input else sample_events()
        demo = Demo(fresh(arguments.out.absolute()), events)
        holds = tell(demo)
    except (DemoError, client.HomingError) as error:
        console.print(f"[bold red]the demo failed:[/] {escape(str(error))}", soft_wrap=True)
        holds = False
    finally:
        if demo is not None:
            demo.close()
            demo.broker.close()
    console.print(f"[dim]{time.monotonic() - began:.0f} s[/]")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
