"""Runs the checks, or those whose names contain one of the words given; says of each what it saw, or why it was skipped."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.system import (
    beside_activemq,
    beside_rabbitmq,
    celery_worker,
    console,
    console_figures,
    deployment,
    failure_reports,
    go_client,
    haproxy,
    instrument_cost,
    instrumented_beside_rabbitmq,
    instrumented_clients,
    java_client,
    network,
    object_store,
    pika_client,
    prometheus,
    spark_connect,
    stomp_beside_rabbitmq,
    stomp_clients,
    watching,
)
from tests.system.check import CHECKS, Check, Failed, Place, Unavailable

#: Importing them enters their checks.
MODULES = (
    pika_client,
    instrumented_clients,
    instrumented_beside_rabbitmq,
    instrument_cost,
    go_client,
    java_client,
    failure_reports,
    haproxy,
    celery_worker,
    console,
    console_figures,
    beside_rabbitmq,
    beside_activemq,
    network,
    deployment,
    prometheus,
    watching,
    object_store,
    spark_connect,
    stomp_beside_rabbitmq,
    stomp_clients,
)


def _played(each: Check) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix=f"check-{each.name}-") as directory:
        place = Place(Path(directory))
        try:
            return "ok", each.play(place)
        except Unavailable as reason:
            return "skipped", str(reason)
        except Failed as error:
            return "failed", str(error)
        finally:
            place.close()


def main(words: list[str]) -> int:
    chosen = [each for each in CHECKS if not words or any(word in each.name for word in words)]
    if not chosen:
        print(f"no check is called so; there are: {', '.join(each.name for each in CHECKS)}", file=sys.stderr)
        return 2
    outcomes: list[str] = []
    for each in chosen:
        began = time.monotonic()
        outcome, words_of_it = _played(each)
        outcomes.append(outcome)
        print(f"{outcome:8}{each.name}: {words_of_it} ({time.monotonic() - began:.0f} s)", flush=True)
    passed, failed, skipped = (outcomes.count(outcome) for outcome in ("ok", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
