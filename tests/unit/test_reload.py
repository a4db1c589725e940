"""A reload: what a file that was cut, emptied or spoilt may never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.auth.passwords import hash_password
from homing.broker.config.changes import check_reload
from homing.broker.config.config import Config, ConfigError, load, parse
from homing.broker.errors import Refused
from homing.broker.process.declarations import problems
from homing.broker.process.reload import read_again, take_up
from homing.broker.steps import at_once
from tests import inside
from tests.model.world import World

HASH = hash_password("a password of ann")
FILE = f"""\
data-directory: data
address-settings:
  "#": {{dead-letter-address: DLA, auto-create-dead-letter-resources: true}}
  "orders.#": {{max-delivery-attempts: 3}}
queues:
  orders.eu: {{durable: true}}
limits:
  window-messages: 500
users:
  ann: {HASH}
"""


def reread(path: Path, running: Config, text: str | bytes) -> Config:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_again(running)


@pytest.mark.parametrize("end", ["", "...\n"])
def test_no_beginning_of_the_file_is_taken_for_the_file(tmp_path: Path, end: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(FILE + end)
    running = load(path)
    whole = (FILE + end).rstrip()
    # Around each end of a line, and here and there within them.
    near = {at + step for at, each in enumerate(whole) if each == "\n" for step in (-1, 0, 1, 2)}
    for length in sorted({*near, *range(0, len(whole), 13), len(whole) - 1}):
        with pytest.raises(Refused) as refused:
            reread(path, running, whole[:length])
        assert "nothing was changed" in refused.value.fix
    assert reread(path, running, FILE + end).users == running.users != {}


def test_the_end_mark_shows_a_cut_between_two_users(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(f"{FILE}  bob: {HASH}\n...\n# the end\n")
    running = load(path)
    with pytest.raises(Refused, match=r"ends in \.\.\."):
        reread(path, running, FILE)
    assert list(reread(path, running, f"{FILE}...\n").users) == ["ann"]


WRONG: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "sets nothing"),
    "comments only": ("# nothing\n", "sets nothing"),
    "an end mark only": ("...\n", "document end"),
    "zeroes": (b"\0" * 4096, "YAML"),
    "no users": (FILE.replace(f"  ann: {HASH}", "  {}"), "no user is left"),
    "no section of users": (FILE.partition("users:")[0], "users: the file in force sets it"),
    "an empty section": (FILE.replace("  window-messages: 500\n", ""), "limits: the file in force sets it"),
    "no address settings": (FILE.replace("address-settings", "addresses"), "addresses"),
    "too large": ("#" * (5 << 20), "larger than"),
    "another file's": ("- a\n", "expected a mapping"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    text, said = WRONG[name]
    path = tmp_path / "broker.yaml"
    path.write_text(FILE)
    running = load(path)
    with pytest.raises(Refused, match=said) as refused:
        reread(path, running, text)
    assert refused.value.code == "config-invalid"
    assert HASH not in str(refused.value)


NODE = "journal: {replication: {url: 'postgresql://db1/homing', cell: main, node: a, copies: 2}}\n"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("cell: main", "cell: other", r"line 1, journal.replication.cell: it is 'main' as long as the node runs, got 'other'"),
        ("db1/", "db1,db2/", r"journal.replication.url: it is 'postgresql://db1/homing' as long as .*,db2/homing'"),
        ("node: a", "node: b", r"journal.replication.node: it is 'a' as long as the node runs, got 'b'"),
        (NODE, "journal: {}\n", "journal.replication: a node does not cease to be one"),
    ],
)
def test_a_node_does_not_become_another_while_it_runs(before: str, after: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        check_reload(parse(NODE), parse(NODE.replace(before, after)))
    assert "put it back" in refused.value.fix
    check_reload(parse(NODE), parse(NODE.replace("copies: 2", "copies: 3")))
    long = NODE.replace("db1", "db" * 40)
    with pytest.raises(ConfigError, match=r"journal\.replication\.url"):
        check_reload(parse(long), parse(long.replace("/homing", "/staging")))
    with pytest.raises(ConfigError, match="a broker becomes a node at a start"):
        check_reload(parse("journal: {}\n"), parse(NODE))


def test_a_file_that_is_gone_or_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(FILE)
    running = load(path)
    path.unlink()
    with pytest.raises(Refused, match="no such file") as gone:
        read_again(running)
    assert gone.value.code == "config-not-found"
    path.mkdir()
    with pytest.raises(Refused, match="no regular file"):
        read_again(running)


def test_a_section_is_taken_away_by_saying_so() -> None:
    running, without = parse(FILE), parse(FILE.replace("  orders.eu: {durable: true}", "  {}"))
    check_reload(running, without)
    with pytest.raises(ConfigError, match="no user is left"):
        check_reload(running, parse(FILE.replace(f"  ann: {HASH}", "  {}")))
    # Where there are none to lose, none are missed.
    check_reload(parse("limits: {}\n"), parse("limits: {}\nusers: {}\n"))


def test_what_cannot_be_declared_leaves_everything_as_it_was() -> None:
    world = World({})
    running = parse(FILE)
    inside.resources(world.broker).declare(BROKER, {"queue": "orders.eu", "durable": False})
    read = parse(FILE.replace("max-delivery-attempts: 3", "max-delivery-attempts: 5") + "virtual-hosts: [shop]\n")
    before = inside.settings(world.broker)
    with pytest.raises(Refused, match=r"queues.orders\.eu: queue orders\.eu exists and was declared otherwise"):
        at_once(take_up(world.broker, running, read))
    assert inside.settings(world.broker) is before
    assert [each.name for each in inside.virtual_hosts(world.broker).all()] == ["/"]
    assert "orders.eu" not in {name for name, address in inside.addresses(world.broker).items() if not address.queues}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("addresses: {'a::b': {}}\n", "cannot name a"),
        ("queues: {'#': {}}\n", "cannot name a"),
        ("queues: {orders: {address: 'a::b'}}\n", "cannot name a"),
        ("virtual-hosts: [" + ", ".join(f"v{number}" for number in range(999)) + "]\n", "as many as there may be"),
    ],
)
def test_every_declaration_is_looked_at_before_any_is_made(text: str, said: str) -> None:
    world = World({})
    inside.virtual_hosts(world.broker).add(BROKER, "one-already")
    (problem,) = problems(world.broker, parse(text))
    assert said in problem.message


def test_a_queue_of_a_virtual_host_that_comes_with_it_can_be_declared() -> None:
    world = World({})
    text = "limits: {}\nvirtual-hosts: [shop]\nqueues: {'::shop.orders': {}}\n"
    running = parse("limits: {}\n")
    at_once(take_up(world.broker, running, parse(text)))
    assert "::shop.orders" in inside.queues(world.broker)
