from homing.integrations.dramatiq import install

install()

from with_dramatiq import book_order  # noqa: E402, F401
