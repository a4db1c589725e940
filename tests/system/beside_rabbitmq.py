"""RabbitMQ itself: the tests that hold ours against what it said once, beside a node that says it now."""

from __future__ import annotations

import sys

from tests.conformance import rabbitmq
from tests.process import ROOT
from tests.system.check import Place, Unavailable, check, run


@check
def beside_rabbitmq(place: Place) -> str:
    if not rabbitmq.installed():
        raise Unavailable("no RabbitMQ; enable: sudo apt-get install rabbitmq-server")
    command = ["env", f"{rabbitmq.ASKED}=1", sys.executable, "-m", "pytest", "-q", "--no-header", "tests/conformance"]
    return f"programs, dead letters, policies: {run(command, ROOT, 'its tests').strip().splitlines()[-1]}"
