from homing.integrations.celery import install

install()

from with_celery import app  # noqa: E402, F401
