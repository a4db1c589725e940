"""The command line, word for word: every command of ``cli_transcript.txt`` says what stands under it, on one broker, from first to last.

What differs from run to run is masked. After a change that is meant, ``HOMING_APPROVE=1`` writes the file anew, and its difference is
read before it is committed.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process import HomingCommand, Server

APPROVED = Path(__file__).with_name("cli_transcript.txt")
#: What commands and their answers name so; besides, ID is the number of the message that was shown last.
PLACES = ("DATA", "AMQP_URL", "BROKER")
#: These may be asked again until what was done before them has its effect: they change nothing.
LOOKS = {"queues", "peek", "history", "why", "explain", "consumers", "connections", "status"}
CONFIG = {
    "amqp": {"port": 0},
    "address-settings": {
        "#": {"auto-delete-queues": False, "auto-delete-addresses": False},
        "fast.#": {"redelivery-delay": 0, "max-delivery-attempts": 2},
    },
}
FILES = {
    "events.jsonl": '{"n": 1}\n\n{"n": 2}\n',
    "good.yaml": 'address-settings: {"orders.#": {redelivery-delay: 5s, max-delivery-attempts: 5}}\n',
    "short.yaml": 'address-settings: {"orders": {redelivery-delay: 1s, redelivery-delay-multiplier: 2, max-delivery-attempts: 3}}\n',
    "wrong.yaml": "native: {port: 0}\nadress-settings: {}\n",
}
MASKS = (
    (r"^(homing [\d.]+)(?: \(compiled\))?, commit [0-9a-f]{12}$", r"\1, commit COMMIT"),
    (
        r"\S+ INFO homing: starting: Homing [\w.]+, commit \w+, configuration \S+",
        "TIME INFO homing: starting: Homing VERSION, commit COMMIT, configuration FILE",
    ),
    (r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d\.\d{3})?(?: UTC)?", "DATE"),
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    # Another day, before midnight.
    (r"\bdue DATE", "due TIME"),
    (r"(held|since) (?:under )?[\d.,]+ (?:ms|s|min)(?= |$|\n|,|;)", r"\1 SPAN"),
    (r"[\d.]+ (?:ms|s|min|h)(?: \d+ \w+)? from now", "SPAN from now"),
    (r"again in [\d.]+ (?:ms|s|min|h)(?: \d+ \w+)?", "again in SPAN"),
    (r"\b1[789]\d{11}\b", "MS"),
    (r"^\d+(?=  [a-z])", "ID"),
    (r"(message|Message|--id|history) \d+\b", r"\1 ID"),
    (r"^\d+ (is|moved) ", r"ID \1 "),
    (r"--after=[\d,-]+", "--after=PLACE"),
    (r'"(message_id|sequence)": ?\d+', r'"\1": ID'),
    (r'\\"(message_id|sequence)\\": ?\d+', r'\\"\1\\": ID'),
    (r"(_AMQ_ORIG_MESSAGE_ID\"?:?) \d+", r"\1 ID"),
    (r"\$argon2id\$\S+", "HASH"),
    (r"from [0-9a-f]{8}/\d+", "from PRODUCER"),
    (r"\bc\d+/\d+\b", "CONSUMER"),
    (r"\bc\d+\b", "CONNECTION"),
    (r"127\.0\.0\.1:(?!1\b)\d+(.*?)  [\d.]+ (?:ms|s)  ", r"127.0.0.1:PORT\1  SPAN  "),
    (r"127\.0\.0\.1:(?!1\b)\d+", "127.0.0.1:PORT"),
    (r"^(memory|disk|journal|log)  .*", r"\1  …"),
    (r"^ +(?:(?:queues|connections|not durable, on disk) [\d.]+|[\d,]+ commits?).*", "  …"),
    (r"  [0-9a-f]{8}  homing-python(?: \S+)?  \S+  native", "  CLIENT  homing-python VERSION  HOST  native"),
    (r"(\d sent), [\d,]+ a second", r"\1, RATE a second"),
    (r"^(homing \S+) \(compiled\)", r"\1"),
)
#: In a table of counts: a rate, or nothing.
RATE = re.compile(r"(?<= )(?:\d+\.\d|·)(?= |$)", re.MULTILINE)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it says), and (comment, "")."""
    for block in re.split(r"^(?=[$#] )", text, flags=re.MULTILINE):
        head, _, said = block.partition("\n")
        if head:
            yield head, said.strip("\n")


def run(shell: HomingCommand, line: str, names: dict[str, str]) -> str:
    """What ``$ homing …`` or ``$ echo … | homing …`` says: standard output, then standard error, then the exit code where it is not 0."""
    before, _, command = line.removeprefix("$ ").rpartition(" | ")
    words = [names.get(word, word) for word in shlex.split(command)]
    assert words[0] == "homing"
    done = shell(*words[1:], stdin=before.removeprefix("echo ") + "\n" if before else None)
    said = "\n".join([done.stdout.rstrip("\n"), done.stderr.rstrip("\n"), f"[exit {done.returncode}]" if done.returncode else ""])
    for name in PLACES:
        said = said.replace(names[name], name)
    shown = re.findall(r'^(\d+)  [a-z]|"message_id": (\d+)', said, re.MULTILINE)
    if shown:
        names["ID"] = max(shown[-1])
    said = re.sub(r" +$", "", re.sub(r"(?<=\S)  +", "  ", said), flags=re.MULTILINE)
    for pattern, mask in MASKS:
        said = re.sub(pattern, mask, said, flags=re.MULTILINE)
    if words[1] in ("queues", "status"):
        said = RATE.sub("~", said)
    return re.sub(r"\n{2,}", "\n\n", said).strip("\n")


@pytest.mark.timeout(240)
def test_the_transcript(start_server: Callable[..., Server], homing: HomingCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    server = start_server(CONFIG)
    homing.url = server.url
    for name, content in FILES.items():
        (homing.directory / name).write_text(content)
    taken = f"native: {{port: {server.ready['native'].rpartition(':')[2]}}}\n"
    (homing.directory / "taken.yaml").write_text(taken)
    places = (str(server.data), f"homing://{server.ready['amqp']}", str(server.directory))
    names = dict(zip(PLACES, places, strict=True))
    approving = bool(os.environ.get("HOMING_APPROVE"))
    seen: list[str] = []
    for head, expected in blocks(APPROVED.read_text()):
        said = "" if head.startswith("#") else settled(homing, head, names, None if approving else expected)
        seen.append(f"{head}\n{said}\n" if said else f"{head}\n")
    if approving:
        APPROVED.write_text("\n".join(seen))
    assert "\n".join(seen) == APPROVED.read_text()


def settled(shell: HomingCommand, head: str, names: dict[str, str], expected: str | None) -> str:
    """What it says in the end. ``expected`` None: whatever that is."""
    if expected is None:
        time.sleep(0.3)  # nobody knows yet what to wait for
    said = run(shell, head, names)
    end = time.monotonic() + 20
    while expected is not None and said != expected and head.split()[2] in LOOKS and time.monotonic() < end:
        time.sleep(0.1)
        said = run(shell, head, names)
    return said
