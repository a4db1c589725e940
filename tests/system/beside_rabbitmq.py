"""RabbitMQ itself: the tests that hold ours against what it said once, beside a node that says it now."""

from __future__ import annotations

import sys

from tests import rabbitmq
from tests.process import ROOT
from tests.system.check import Place, Unavailable, check, run

FILES = ("conformance", "dead_letters", "policies_compared")


@check
def beside_rabbitmq(place: Place) -> str:
    if not rabbitmq.installed():
        raise Unavailable("no RabbitMQ; enable: sudo apt-get install rabbitmq-server")
    files = [f"tests/integration/test_amqp_{name}.py" for name in FILES]
    command = ["env", f"{rabbitmq.ASKED}=1", sys.executable, "-m", "pytest", "-q", "--no-header", *files]
    return f"programs, dead letters, policies: {run(command, ROOT, 'its tests').strip().splitlines()[-1]}"
