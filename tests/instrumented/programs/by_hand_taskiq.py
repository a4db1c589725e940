from homing.integrations.taskiq import install

install()

from with_taskiq import broker  # noqa: E402, F401
