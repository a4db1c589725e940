"""A listener that refuses within ``except``, and where it does not, ends its connection."""

import sys
import threading

import stomp
from booking import QUEUE, RATES, URL

over = threading.Event()
made = {"1.1": stomp.Connection11, "1.2": stomp.Connection12}[sys.argv[1]]


class Listener(stomp.ConnectionListener):
    def on_message(self, frame):
        if frame.body == "outside":
            raise ValueError("a\r\nb: c")
        try:
            print(1 / RATES[frame.body])
        except KeyError:
            name = frame.headers.get("ack", frame.headers["message-id"])
            program.nack(name, *([] if "ack" in frame.headers else ["s"]), retryable="false")

    def on_disconnected(self):
        over.set()


host, _, port = URL.rpartition(":")
program = made([(host, int(port))])
program.set_listener("", Listener())
program.connect(wait=True)
program.subscribe(f"/queue/{QUEUE}", id="s", ack="client-individual")
over.wait()
