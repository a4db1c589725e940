"""The service as it is deployed: the unit under a real systemd, the image, the StatefulSet. Containers stand on a Debian made here."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.process import ROOT
from tests.system.check import Failed, Place, Unavailable, check, expect, run, tool

_BASE: Final = "localhost/homing-check-base"
_DEBIAN: Final = "python3,python3-venv,sudo,systemd,systemd-sysv"
_WAIT_S: Final = 120.0
#: Nothing is fetched: what the image was made from is all there is.
_PIP: Final = "[global]\nno-index = true\nfind-links = /wheels\n"
_NOT_WRITABLE: Final = "[Service]\nReadOnlyPaths=/var/lib/homing\n"
_CA: Final = "/etc/homing/tls/ca.pem"
_PROBE: Final = f"""
import ssl, urllib.request
context = ssl.create_default_context(cafile="{_CA}")
print(urllib.request.urlopen("https://localhost:7174/readyz", context=context).read().decode())
"""


def _podman(*words: str | Path) -> str:
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    return run([tool("podman"), *runtime, *map(str, words)], ROOT, f"podman {' '.join(map(str, words))}").strip()


def _limits() -> list[str]:
    """As the unit has them, and no more than this process: it could not give more than it has."""
    wanted = {"nofile": (resource.RLIMIT_NOFILE, 16_384), "nproc": (resource.RLIMIT_NPROC, 4_096)}
    most = {name: min(limit, own) if (own := resource.getrlimit(kind)[1]) >= 0 else limit for name, (kind, limit) in wanted.items()}
    return [f"--ulimit={name}={limit}:{limit}" for name, limit in most.items()]


def _image() -> str:
    """The base, where there is none yet, and on it the image of what is in dist/. Raises Unavailable."""
    for needed in ("podman", "buildah", "debootstrap"):
        tool(needed)
    if os.geteuid():
        raise Unavailable("containers on a root file system of one's own take root; enable: sudo")
    if not list(ROOT.glob("dist/*.whl")):
        raise Unavailable("no wheels; enable: scripts/build-wheels")
    if _BASE not in _podman("images", "--format", "{{.Repository}}").splitlines():
        files = ROOT / "build" / "root-file-system"
        shutil.rmtree(files, ignore_errors=True)
        files.parent.mkdir(exist_ok=True)
        run(["debootstrap", "--variant=minbase", f"--include={_DEBIAN}", "bookworm", str(files)], ROOT, "debootstrap")
        run(["sh", "-c", f"tar -C {files} -c . | podman import - {_BASE}"], ROOT, "podman import")
        shutil.rmtree(files)
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    run(["scripts/build-image", f"--build-arg=BASE={_BASE}", "--network=none", *runtime, *_limits()], ROOT, "scripts/build-image")
    return "localhost/homing"


class Container:
    def __init__(self, image: str, *options: str, program: tuple[str, ...] = ()) -> None:
        self.name = _podman("run", "--detach", "--network=none", *_limits(), *options, image, *program)

    def run(self, *words: str) -> str:
        """Raises Failed where it ends with anything but 0."""
        return _podman("exec", self.name, *words)

    def shell(self, script: str) -> str:
        return self.run("bash", "-ec", script)

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said last, once it has ended by itself."""
        code = int(_podman("wait", self.name))
        said = subprocess.run(["podman", "logs", self.name], capture_output=True, text=True, timeout=60, check=True)
        return code, (said.stdout + said.stderr).strip().splitlines()[-1]


@contextmanager
def _container(image: str, *options: str, program: tuple[str, ...] = ()) -> Iterator[Container]:
    container = Container(image, *options, program=program)
    try:
        yield container
    finally:
        _podman("rm", "--force", "--volumes", container.name)


def _until(what: str, seen: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_S
    while not seen():
        if time.monotonic() > end:
            raise Failed(f"waited {_WAIT_S:.0f} s in vain until {what}")
        time.sleep(0.5)


def _page(heading: str) -> list[str]:
    """The blocks of shell of one section of the page on operations."""
    section = (ROOT / "docs" / "operations.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [str(block) for block in re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)]


@check
def systemd(place: Place) -> str:
    _image()
    wheels = ROOT / "build" / "image" / "wheels"
    with _container(_BASE, "--privileged", "--systemd=always", f"--volume={wheels}:/wheels:ro", program=("/sbin/init",)) as machine:
        homing = "/opt/homing/bin/homing"

        def shown(what: str) -> str:
            return machine.run("systemctl", "show", "--value", f"--property={what}", "homing")

        def is_ready() -> bool:
            return machine.shell(f"{homing} health || true") == "ready"

        _until("systemd is up", lambda: "running" in machine.shell("systemctl is-system-running || true"))
        machine.shell(f"echo '{_PIP}' >/etc/pip.conf; ln -s {homing} /usr/local/bin")
        (install,) = _page("As a service of systemd")
        machine.shell(install)
        expect(shown("ActiveState"), "active")
        expect(shown("StatusText").split()[:2], ["homing", "ready"])
        expect(machine.shell(f"grep CapEff /proc/{shown('MainPID')}/status").split()[1], "0" * 16)
        machine.run(homing, "send", "orders", "--body", "kept")

        machine.run("systemctl", "reload", "homing")
        _until("the reload is told", lambda: shown("StatusText") == "reloaded")
        machine.shell("sed -i 's/^users: {}/users: nobody/' /etc/homing/broker.yaml; systemctl reload homing")
        _until("the refusal is told", lambda: shown("StatusText").startswith("not reloaded"))
        expect(machine.shell("systemctl restart homing || systemctl is-failed homing"), "failed")
        expect((shown("ExecMainStatus"), shown("NRestarts")), ("5", "0"))
        machine.shell("sed -i 's/^users: nobody/users: {}/' /etc/homing/broker.yaml; systemctl start homing")

        hung = shown("MainPID")
        machine.shell(f"kill -STOP {hung}")
        _until("the watchdog has had it started again", lambda: shown("MainPID") not in ("0", hung) and is_ready())
        expect(machine.shell("journalctl --unit homing | grep --count 'Watchdog timeout'"), "1")

        readonly = "/etc/systemd/system/homing.service.d/check.conf"
        machine.shell(f"mkdir -p $(dirname {readonly}); echo '{_NOT_WRITABLE}' >{readonly}; systemctl daemon-reload")
        machine.shell("systemctl restart homing || true")
        _until("it waits for the disk", lambda: shown("SubState") == "start-pre")
        machine.shell(f"rm {readonly}; systemctl daemon-reload; systemctl restart homing")

        upgrade, back = _page("Upgrade")
        machine.shell(upgrade)
        machine.run(homing, "send", "orders", "--body", "after the backup")
        version = machine.run(homing, "--version").split()[1]
        machine.shell(re.sub(r"homing==[\d.]+", f"homing=={version}", back))
        expect(machine.shell(f"{homing} receive orders --count 2 --timeout 1s | cat").splitlines()[1:], ["kept"])
    return "installed as the page says; reload, watchdog, exit codes 5 and 70, upgrade and the way back by systemd itself"


@check
def image(place: Place) -> str:
    homing = _image()
    with _container(homing) as bare, _container(homing, "--env=HOMING_INSECURE=1") as open_to_all:
        code, said = bare.ended()
        expect((code, "no certificate" in said), (5, True))
        code, said = open_to_all.ended()
        expect((code, "no administrator" in said), (5, True))
    tls, secret = place.directory / "tls", place.directory / "secret"
    run([sys.executable, "-m", "homing", "tls", "self-signed", "--host", "localhost", "--directory", str(tls)], ROOT, "self-signed")
    tls.joinpath("server.pem").rename(tls / "tls.crt")
    tls.joinpath("server.key").rename(tls / "tls.key")
    secret.write_text("sesame\n")
    for path in (*tls.iterdir(), tls, secret):
        os.chown(path, 7171, 7171)
    options = f"--volume={tls}:/etc/homing/tls:ro", f"--volume={secret}:/run/password:ro", "--env=HOMING_ADMIN_PASSWORD_FILE=/run/password"
    with _container(homing, *options, "--env=HOMING_INSECURE=1") as broker:
        _until("it is ready without TLS", lambda: broker.shell("homing health || true") == "ready")
    with _container(homing, *options, "--read-only", "--cap-drop=all") as broker:
        _until("it is healthy", lambda: broker.shell("homing health || true") == "ready")
        expect(_podman("healthcheck", "run", broker.name), "")
        broker.run("homing", "send", "--url", f"homings://admin:sesame@localhost:7173?cafile={_CA}", "orders", "--body", "hello")
        expect(broker.shell("homing queues 2>&1 >/dev/null || true").split()[:2], ["error", "login-required"])
        expect(broker.run("python3", "-c", _PROBE), '{"state":"ready","degraded":[]}')
        expect(broker.shell("id --user; find /opt /etc /usr -writable -type f 2>/dev/null || true"), "7171")
    return "ends with a sentence without certificate or administrator; with both it serves, as nobody, on a file system that is read-only"


@check
def kubernetes(place: Place) -> str:
    tools = Path(run(["scripts/release-tools"], ROOT, "scripts/release-tools").strip())
    path = ROOT / "deploy" / "kubernetes" / "homing.yaml"
    paths = [str(path.with_name(name)) for name in ("homing.yaml", "homing-cluster.yaml", "homing-nightly.yaml")]
    said = run([str(tools / "kubernetes-validate"), "--strict", *paths], ROOT, "kubernetes-validate")
    wrong = place.directory / "wrong.yaml"
    wrong.write_text(path.read_text().replace("failureThreshold", "failures"))
    refused = subprocess.run([tools / "kubernetes-validate", "--strict", wrong], capture_output=True, timeout=120, check=False)
    expect((said.count(" passed "), refused.returncode), (8, 1))
    return "services, stateful sets, disruption budget and nightly job are by Kubernetes's own schemas"
