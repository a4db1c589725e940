"""Sends tasks as the library's own programs do: ``sending.py LIBRARY TASK [[arguments], …]``."""

import asyncio
import importlib
import json
import sys

library, task, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
program = importlib.import_module(f"with_{library}")


async def kick():
    await program.broker.startup()
    for each in arguments:
        await getattr(program, task).kiq(*each)
    await program.broker.shutdown()


if library == "taskiq":
    asyncio.run(kick())
else:
    for each in arguments:
        called = getattr(program, task)
        called.apply_async(each) if library == "celery" else called.send(*each)
