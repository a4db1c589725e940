"""The Celery application of secured_clients."""

# Celery says nothing of its types.
# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import os
import ssl

from celery import Celery

app = Celery("secured", broker=os.environ["TEST_BROKER_URL"], backend="rpc://")
app.conf.update(
    broker_use_ssl={"ca_certs": os.environ["TEST_CA_FILE"], "cert_reqs": ssl.CERT_REQUIRED}, broker_connection_retry_on_startup=True
)


@app.task
def echo(text: str) -> str:
    return text
