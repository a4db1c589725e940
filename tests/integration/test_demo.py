"""``scripts/demo`` from outside: the whole story with real processes, real kills and Spark, on fewer lines."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from examples.make_sample import sample_lines
from tests.process import ROOT


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_accounts_for_every_line(tmp_path: Path) -> None:
    lines = [*sample_lines(60, seed=3), json.dumps({"no": "event"})]
    source = tmp_path / "events.jsonl"
    source.write_text("\n".join(lines) + "\n")
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "NO_COLOR": "1"}
    environment.pop("HOMING_URL", None)
    # On the Java that comes with the extra, whatever the machine has; one run needs no archive of classes, which takes longer to write
    # than it saves.
    environment |= {"HOMING_JAVA": "packaged", "JAVA_HOME": "", "XDG_CACHE_HOME": os.devnull}
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "--input", "events.jsonl", "--out", "demo"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    broken = sum("payload" not in (event := json.loads(line)) or "repository" not in event["payload"] for line in lines)
    assert broken >= 2
    assert f"61 = {61 - broken} + {broken}" in done.stdout
    assert "✗  " not in done.stdout.split("The account")[1]
    assert (tmp_path / "demo" / "report" / "report.html").stat().st_size > 10_000
    assert str(tmp_path / "demo" / "report" / "report.html") in done.stdout
    assert "http://127.0.0.1:15672" in done.stdout
    logs = list((tmp_path / "demo").glob("worker-*.jsonl"))
    assert {log.stem for log in logs} >= {f"worker-{mode}" for mode in ("auto", "client", "dups_ok", "transacted", "individual")}


@pytest.mark.plain
def test_the_demo_does_not_empty_a_directory_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter.txt").write_text("dear")
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "--out", str(tmp_path / "precious")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "was not made by this demo" in " ".join(done.stdout.split())
    assert (tmp_path / "precious" / "letter.txt").read_text() == "dear"
