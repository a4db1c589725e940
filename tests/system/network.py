"""A broker on one machine and its clients on another: two network namespaces with a cable between them, TLS and users."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from homing.broker.auth.passwords import hash_password
from tests.deployment import scripts
from tests.process import ROOT, Server
from tests.system.check import Failed, Place, Unavailable, check, expect, run, said
from tests.system.secured_clients import PLAYERS, Broker

#: Of TEST-NET-2, which no machine has.
_BROKER, _CLIENT = "198.51.100.1", "198.51.100.2"
#: librabbitmq, which amqp-tools are made of, knows certificates of names only.
_NAME: Final = "broker.example"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


@contextmanager
def two_machines() -> Iterator[tuple[str, str]]:
    """The names of two namespaces whose only way out is to each other. Raises Unavailable."""
    if os.geteuid() or shutil.which("ip") is None:
        raise Unavailable("no network namespaces; enable: run as root, with ip (iproute2)")
    names = f"homing-b{os.getpid()}", f"homing-c{os.getpid()}"
    with ExitStack() as undo:
        for name in names:
            try:
                _ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                raise Unavailable(f"no network namespaces ({error.stderr.strip()}); enable: run as root of the machine") from None
            undo.callback(_ip, "netns", "delete", name)
        hosts = Path("/etc/netns") / names[1] / "hosts"
        hosts.parent.mkdir(parents=True)
        undo.callback(shutil.rmtree, hosts.parent)
        hosts.write_text(f"127.0.0.1 localhost\n{_BROKER} {_NAME}\n")
        _ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, (_BROKER, _CLIENT), strict=True):
            _ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", name, "link", "set", device, "up")
        yield names


def _broker(place: Place, namespace: str) -> Server:
    directory = place.directory / "network"
    directory.mkdir()
    run([sys.executable, "-m", "homing", "tls", "self-signed", "--host", _NAME, "--directory", str(directory / "tls")], ROOT, "homing tls")
    config: dict[str, Any] = {
        "native": {"port": 0, "tls-host": _BROKER},
        "amqp": {"port": None, "tls-host": _BROKER},
        "tls": {"certificate": "tls/server.pem", "key": "tls/server.key"},
        "users": {"ann": hash_password("her-secret")},
    }
    server = Server(directory, config)
    server.module, server.runner = "homing", ["ip", "netns", "exec", namespace]
    return server


def _wheel(place: Place) -> Path:
    """A venv to type the page in has only what the wheel brings."""
    source = place.directory / "source"
    run(["git", "clone", "--quiet", str(ROOT), str(source)], ROOT, "git clone")
    run([sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "-w", "..", "."], source, "pip wheel")
    return next(place.directory.glob("homing-*.whl"))


@check
def network_deploy(place: Place) -> str:
    played, wheel = scripts(), _wheel(place)
    machines = [place.directory / name for name in ("broker", "client")]
    for machine in machines:
        machine.mkdir()
        shutil.copy(wheel, machine)
    try:
        run(["bash", "-euc", played.install], machines[0], "installing the wheel")
    except Failed as error:
        raise Unavailable(f"what the wheel needs cannot be had ({error}); enable: reach a package index") from None
    activate = f". {machines[0]}/homing-venv/bin/activate\n"
    with two_machines() as (there, here):
        run(["ip", "netns", "exec", there, "bash", "-euc", activate + played.broker], machines[0], "the broker's side")
        try:
            for name in ("tls/ca.pem", "shop.secret", "admin.secret"):
                shutil.copy(machines[0] / name, machines[1])
            seen = run(["ip", "netns", "exec", here, "bash", "-euc", activate + played.client], machines[1], "the client's side")
        finally:
            os.kill(int((machines[0] / "pid").read_text()), signal.SIGTERM)
    expect("hello over there" in seen, True)
    return "docs/deploy.md, typed as it stands, from the wheel to a message from another network namespace"


@check
def network_clients(place: Place) -> str:
    tools: Final = shutil.which("amqp-publish")
    names = [name for name in PLAYERS if tools or name != "amqp_tools"]
    with two_machines() as (there, here):
        server = _broker(place, there).start()
        try:
            cafile = str(server.directory / "tls" / "ca.pem")
            where = Broker(_NAME, 7173, 5671, cafile, "ann", "her-secret", str(place.directory))._asdict()
            command = ["ip", "netns", "exec", here, sys.executable, "-m", "tests.system.secured_clients", json.dumps(where), *names]
            expect(said(run(command, ROOT, "the clients")), dict.fromkeys(names, True))
        finally:
            server.close()
    without = "" if tools else "; without amqp-tools (enable: apt-get install amqp-tools)"
    return f"{', '.join(names)} over TLS from another network namespace{without}"
