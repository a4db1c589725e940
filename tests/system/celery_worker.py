"""Celery with a real worker, as tests/integration/test_amqp_celery.py runs it."""

from __future__ import annotations

import sys

from tests.process import ROOT
from tests.system.check import Place, check, run


@check
def celery_worker(place: Place) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "tests/integration/test_amqp_celery.py"]
    seen = run(command, ROOT, "its tests").strip().splitlines()[-1]
    return f"countdown, ETA, retries, priorities, a killed worker: {seen}"
