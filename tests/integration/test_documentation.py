"""What the documentation shows works as shown: its programs run, its commands exist, its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import homing as client
from homing.broker.cli import manual
from homing.broker.cli.examples import EXAMPLES
from homing.broker.cli.main import command_tree
from tests.config_keys import config_keys
from tests.process import ROOT, HomingCommand, Server

_FOLDERS = "analytics|benchmarks|broker|client|deploy|examples|homing|journal|scripts|tests"
#: Files and hosts that are named like sections of broker.yaml.
_NO_SETTINGS = (".key", ".crt", ".pem", ".xml", ".yaml", ".example")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Pages that are read from the top by whoever is new, or in a hurry, and how long a sentence and a paragraph are there at most.
EASY = ("README.md", "docs/failures.md", "docs/operations.md", "docs/interoperability.md")
MOST_WORDS, MOST_LINES, LINE = 30, 5, 140
_ITEM = re.compile(r"(?:\d+\.|[-*])\s+")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])[)*]*\s+(?=[A-Z`\[*(])")


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[list[str]]:
    """Every ``homing …`` in a block of shell on a page, without comments, pipes and what stands in capitals or brackets."""
    found = []
    for text in [*blocks(page, "bash"), *blocks(page, "console"), *blocks(page, "sh")]:
        for line in text.replace("\\\n", " ").splitlines():
            if "homing " not in line:
                continue
            try:
                words = shlex.split(line.removeprefix("$ "), comments=True)
            except ValueError:  # a quotation mark in what a command prints
                continue
            if words and words[0].rpartition("/")[2] == "homing":
                end = next((at for at, word in enumerate(words) if word in ("|", "&", ">", "&&", "<")), len(words))
                found.append(words[1:end])
    return found


def paragraphs(text: str) -> Iterator[str]:
    """Those of a page's prose, items of lists by themselves: no blocks of code, tables, headings, pictures, nor addresses of links."""
    found: list[str] = []
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"!\[[^\]]*\]\([^)]*\)", "", BLOCK.sub("", text)))
    for line in [*map(str.strip, text.splitlines()), ""]:
        item = _ITEM.match(line)
        if found and (item or not line or line.startswith(("|", "#", "<"))):
            yield " ".join(found)
            found = []
        if line and not line.startswith(("|", "#", "<")):
            found.append(line[item.end() :] if item else line)


def too_long(text: str) -> list[str]:
    """Sentences and paragraphs of a page that are. What stands in code is one word, whatever it is."""
    found = []
    for paragraph in paragraphs(text):
        if (lines := len(textwrap.wrap(paragraph, LINE))) > MOST_LINES:
            found.append(f"{lines} lines: {paragraph[:60]}")
        for sentence in _SENTENCE_ENDS.split(re.sub(r"`[^`]*`", "`x`", paragraph)):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            found += [f"{len(words)} words: {sentence}"] if len(words) > MOST_WORDS else []
    return found


def known_options(words: list[str]) -> tuple[str, set[str]]:
    """The command that ``words`` begin with, and every option it has."""
    command: Any = command_tree()
    name = "homing"
    for word in words:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command, name = inner, f"{name} {word}"
    return name, {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_are_shown_exist(page: Path) -> None:
    wrong = []
    for words in commands(page):
        name, options = known_options(words)
        used = [word.partition("=")[0] for word in words if word.startswith("-") and not word.lstrip("-").isdecimal()]
        wrong += [f"{name} has no {option}" for option in used if option not in options]
        if name == "homing" and words and not words[0].startswith("-"):
            wrong.append(f"there is no command {words[0]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_too_long_is_found() -> None:
    sentence = " ".join(["word"] * MOST_WORDS)
    others = f"# {sentence} more\n\n| {sentence} | more |\n\n- {sentence}\n- more.\n\n```\n{sentence} more\n```\n"
    fits = f"{sentence}. {sentence.capitalize()}.\n\n{others}"
    assert too_long(f"{fits}\nAn [address](https://example.com/{'a' * 9 * LINE}) and `code {sentence}`.") == []
    assert [each.partition(":")[0] for each in too_long(f"{sentence} more.")] == [f"{MOST_WORDS + 1} words"]
    assert [each.partition(":")[0] for each in too_long("Short. " * LINE)] == ["7 lines"]


@pytest.mark.parametrize("page", EASY)
def test_sentences_and_paragraphs_are_short(page: str) -> None:
    assert too_long((ROOT / page).read_text()) == []


def leaves(command: Any, words: str = "") -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words
        return
    for name, each in inner.items():
        if not each.hidden:
            yield from leaves(each, f"{words} {name}".strip())


def test_every_command_has_examples_and_they_are_right() -> None:
    assert sorted(EXAMPLES) == sorted(leaves(command_tree())), "broker/cli/examples.py has them"
    for words, lines in EXAMPLES.items():
        for line in lines:
            shown = shlex.split(next(part for part in line.split(" | ") if part.startswith("homing ")))[1:]
            name, options = known_options(shown)
            assert name == f"homing {words}"
            assert {word for word in shown if word.startswith("--")} <= options


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("homing peek ord", {"bash": "orders", "zsh": """_arguments '*: :(("orders"))'""", "fish": "orders"}),
        ("homing redrives sta", {"bash": "status"}),
    ],
)
def test_shells_complete_commands_and_queues(server: Server, homing: HomingCommand, typed: str, answers: dict[str, str]) -> None:
    homing("queue", "create", "orders", url=server.url)
    asked = {"COMP_WORDS": typed, "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for shell, answer in answers.items():
        environment = {**os.environ, **asked, "HOMING_URL": server.url, "_HOMING_COMPLETE": f"complete_{shell}"}
        done = subprocess.run(
            [sys.executable, "-m", "homing"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.strip() == answer


def test_what_is_installed_beside_the_command_is_made_from_its_help() -> None:
    for path, content in manual.files().items():
        assert (ROOT / "share" / path).read_text() == content, "make it anew: .venv/bin/python -m homing.broker.cli.manual share"


def test_the_readme_shows_commands_at_all() -> None:
    assert len(commands(ROOT / "README.md")) >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [link for link in links if not re.match(r"\w+:", link) and not (page.parent / link).exists()]
    assert not missing


def test_the_shell_session_of_the_readme_works(server: Server, homing: HomingCommand) -> None:
    session = next(text for text in blocks(ROOT / "README.md", "bash") if "homing serve" in text)
    ran = 0
    for line in session.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["homing"] and words[1] != "serve":
            done = homing(*words[1:], url=server.url)
            assert done.returncode == 0, f"{line}: {done.stderr}"
            assert done.stdout, f"{line} says nothing: {done.stderr}"
            ran += 1
    assert ran >= 4


def test_the_program_of_the_readme_works(server: Server, tmp_path: Path) -> None:
    (program,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in program.splitlines() if line.strip()]) <= 22
    (tmp_path / "ship.py").write_text(program.replace("homing://127.0.0.1:7171", server.url))
    done = subprocess.run(
        [sys.executable, tmp_path / "ship.py"],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "shipped b'a loaf of bread' at attempt 1\n", "")


def test_the_exit_codes_of_the_manual_are_those_of_the_command() -> None:
    from homing.broker.cli.output import ExitCode

    reported = set(map(int, re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)))
    assert reported == set(map(int, ExitCode))


def test_files_and_settings_that_pages_name_are_there() -> None:
    """But for decisions, which are of their day. ``limits.max-connections``: of broker.yaml."""
    texts = {page: page.read_text() for page in PAGES if page.parent.name != "decisions"}
    files = {(page, name) for page, text in texts.items() for name in re.findall(rf"`((?:(?:{_FOLDERS})/|test_)[\w/.*-]+)`", text)}
    assert len(files) > 100
    assert [each for each in files if not list(ROOT.glob(each[1] if "/" in each[1] else f"tests/*/{each[1]}"))] == []
    known = set(config_keys())
    sections = "|".join(sorted({key.partition(".")[0] for key in known if "." in key}))
    settings = {(page, name) for page, text in texts.items() for name in re.findall(rf"`((?:{sections})\.[a-z-]+)`", text)}
    assert len(settings) > 50
    assert [each for each in settings if each[1] not in known and not each[1].endswith(_NO_SETTINGS)] == []


def test_tests_that_a_page_names_are_there() -> None:
    """``file::test``, without its ``test_``."""
    named = set(re.findall(r"`([a-z]\w*)::(\w+)`", (ROOT / "docs" / "comparison.md").read_text())) - {("file", "test")}
    texts = {file: "".join(each.read_text() for each in ROOT.glob(f"tests/*/test_{file}.py")) for file, _ in named}
    assert len(named) > 100
    assert [each for each in named if f"def test_{each[1]}(" not in texts[each[0]]] == []


@pytest.mark.timeout(240)
async def test_the_commands_of_the_page_on_operations_work(start_server: Callable[..., Server]) -> None:
    """One after the other, with numbers of this broker for those that are shown. Those with sudo are for scripts/check-system."""
    server = start_server({"data-directory": "homing-data"})
    homing = HomingCommand(server.directory)
    homing.url = server.url
    async with client.connect(server.url) as connection, connection.session(client.AckMode.INDIVIDUAL) as session:
        producer = session.producer("orders")
        await producer.send(b"dies")
        dead = await session.consumer("orders", prefetch=1).receive(20_000)
        assert dead is not None
        await dead.nack(retryable=False)
        (own,) = [each["connection"] for each in homing.json("connections") if each["consumers"]]
        page = commands(ROOT / "docs" / "operations.md")
        of_the_stopped = [words for words in page if "--data" in words]
        for words in page:
            if words[0] == "serve" or "--follow" in words or words in of_the_stopped:
                continue
            await producer.send(b"waits")
            (waiting,) = homing.json_lines("peek", "orders", "--count", "1")
            shown = {"1049601": str(waiting["message_id"]), "c17": own}
            _, options = known_options(words)
            done = homing(*(shown.get(word, word) for word in words), *(["--yes"] if "--yes" in options else []))
            assert done.returncode == 0, f"{words}: {done.stderr}"
    server.stop()
    for words in of_the_stopped:
        done = homing(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    server.config["data-directory"] = "new-data"
    homing.url = server.start().url
    assert homing.json_lines("peek", "orders"), "the backup had messages"
