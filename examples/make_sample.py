"""Makes sample events: ``python -m examples.make_sample > sample.jsonl``.

One JSON object a line, shaped like what code hosts post to webhooks: ``event`` names the kind, ``payload`` tells it. Everything in
it is invented here from a seed, so that the same seed makes the same bytes. Payloads take about 0.5 to 20 KiB. About one event in
nine speaks of no repository: handlers that count on one break on those, every time.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from typing import Any, Final

#: kind -> (how often, whether it is about a repository, least and most words of free text in it)
KINDS: Final[dict[str, tuple[int, bool, int, int]]] = {
    "push": (22, True, 20, 900),
    "pull_request": (20, True, 150, 3800),
    "issues": (18, True, 80, 2200),
    "issue_comment": (10, True, 30, 1500),
    "check_run": (8, True, 25, 600),
    "release": (5, True, 200, 2600),
    "deployment": (4, True, 30, 120),
    "star": (2, True, 25, 60),
    "membership": (4, False, 30, 60),
    "organization": (3, False, 30, 200),
    "installation": (2, False, 30, 400),
    "ping": (1, False, 30, 60),
}
WORDS: Final = (
    "the a of to and in is that for on with as it this when because after before never always broker queue message retry delay failed "
    "again slow fast lost found timeout connection socket port buffer window credit release branch merge commit review test build cache "
    "index page journal disk write read sync home return letter dead alive pigeon loft flight feather north south wind rain morning night"
).split()
NAMES: Final = ("ada", "barbara", "carl", "dorothy", "edsger", "frances", "grace", "hedy", "ivan", "jean", "kathleen", "leslie")
PROJECTS: Final = ("loft", "feather", "compass", "tailwind", "roost", "beacon")
ACTIONS: Final = ("opened", "closed", "edited", "labeled", "created", "completed")


def sample_lines(lines: int = 300, seed: int = 7) -> Iterator[str]:
    """``lines`` events as JSON texts without line ends; equal for equal arguments."""
    rng = random.Random(seed)
    kinds = list(KINDS)
    weights = [KINDS[kind][0] for kind in kinds]
    for number in range(1, lines + 1):
        kind = rng.choices(kinds, weights)[0]
        yield json.dumps({"event": kind, "payload": _payload(rng, kind, number)}, separators=(",", ":"))


def _payload(rng: random.Random, kind: str, number: int) -> dict[str, Any]:
    _, about_repository, least, most = KINDS[kind]
    payload: dict[str, Any] = {
        "delivery": f"{rng.getrandbits(64):016x}",
        "number": number,
        "action": rng.choice(ACTIONS),
        "at": f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)}T{rng.randint(10, 23)}:{rng.randint(10, 59)}:{rng.randint(10, 59)}Z",
        "sender": _person(rng),
        # Most events are short, some are long.
        "body": _text(rng, least + int((most - least) * rng.random() ** 2.2)),
        "labels": rng.sample(WORDS[20:], rng.randint(2, 8)),
        "commits": [_commit(rng) for _ in range(rng.randint(1, 9) if kind == "push" else 0)],
    }
    if about_repository:
        project = rng.choice(PROJECTS)
        payload["repository"] = {"name": project, "full_name": f"homing/{project}", "owner": _person(rng), "private": rng.random() < 0.3}
    else:
        payload["organization"] = {"login": "homing", "members": [_person(rng) for _ in range(rng.randint(1, 12))]}
    return payload


def _person(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(NAMES)
    return {"login": name, "id": rng.randrange(10**6, 10**7), "url": f"https://example.org/{name}", "admin": rng.random() < 0.1}


def _commit(rng: random.Random) -> dict[str, Any]:
    return {"id": f"{rng.getrandbits(160):040x}", "message": _text(rng, rng.randint(4, 30)), "author": _person(rng)}


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def main() -> None:
    parser = argparse.ArgumentParser(description="Sample events as JSON lines on standard output.")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    for line in sample_lines(arguments.lines, arguments.seed):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
