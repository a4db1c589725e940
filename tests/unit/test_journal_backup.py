"""What backups and restores refuse, and what they leave alone. The rest: tests/faults/test_backup.py."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from homing.journal.backup.backup import make_of_directory, restore
from homing.journal.errors import JournalError
from homing.journal.store.building import building, partial_name
from tests.unit.journal_support import opened, query, queue, send


async def _stopped(directory: Path) -> Path:
    """A journal with a message in it; returns a copy as a kill leaves one."""
    killed = directory.with_name("killed")
    async with opened(directory) as (journal, _):
        journal.batch.queue(queue())
        send(journal, journal.next_id())
        await journal.flush()
        shutil.copytree(directory, killed)
    return killed


async def test_a_restore_leaves_what_it_reads_and_what_is_beside_it_as_it_was(tmp_path: Path) -> None:
    await _stopped(tmp_path / "data")
    make_of_directory(tmp_path / "data", tmp_path / "backups", "one")
    backup, volume = tmp_path / "backups" / "one", tmp_path / "volume"
    before = {path.name: path.read_bytes() for path in backup.iterdir()}
    volume.mkdir()
    volume.chmod(0o755)
    restore(backup, volume / "data")
    assert {path.name: path.read_bytes() for path in backup.iterdir()} == before
    assert stat.S_IMODE(volume.stat().st_mode) == 0o755
    assert stat.S_IMODE((volume / "data").stat().st_mode) == 0o700
    assert query(volume / "data", "SELECT count(*) FROM reference") == [(1,)]


async def test_the_directory_of_a_running_broker_is_no_backup(tmp_path: Path) -> None:
    """Its files are of different moments while they are copied."""
    async with opened(tmp_path / "data"):
        with pytest.raises(JournalError) as caught:
            restore(tmp_path / "data", tmp_path / "new")
    assert caught.value.code == "journal-locked"
    restore(tmp_path / "data", tmp_path / "new")


@pytest.mark.parametrize("content", ["nothing", "text", "database", "first start cut short"])
def test_what_is_no_journal_is_refused_with_a_code(tmp_path: Path, content: str) -> None:
    path = tmp_path / "backup" / "homing.db"
    path.parent.mkdir()
    path.write_bytes(b"some text" * 1_000 if content == "text" else b"")
    if content in ("database", "first start cut short"):
        with closing(sqlite3.connect(path)) as connection:
            statement = "CREATE TABLE theirs (a)" if content == "database" else f"PRAGMA application_id = {0x486F6D69}"
            connection.execute(statement)
    with pytest.raises(JournalError) as caught:
        restore(path.parent, tmp_path / "new")
    assert caught.value.code == ("journal-foreign" if content == "database" else "journal-damaged")
    assert [place.name for place in tmp_path.iterdir()] == ["backup"]


async def test_a_copy_that_lacks_commits_is_refused(tmp_path: Path) -> None:
    killed = await _stopped(tmp_path / "data")
    (killed / "homing.db-wal").unlink()
    with pytest.raises(JournalError, match=r"commits are missing"):
        restore(killed, tmp_path / "new")
    with pytest.raises(JournalError, match=r"of the copy.*commits are missing"):
        make_of_directory(killed, tmp_path / "backups", "one")
    assert list((tmp_path / "backups").iterdir()) == []
    assert not (tmp_path / "new").exists()


async def test_a_place_that_cannot_be_used_is_told_with_a_code(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with opened(tmp_path / "data", backup_directory="../file") as (journal, _):
        with pytest.raises(JournalError) as caught:
            journal.backups.make("one")
    assert caught.value.code == "backup-io"
    with pytest.raises(JournalError) as caught:
        make_of_directory(tmp_path / "data", tmp_path / "file", "one")
    assert caught.value.code == "backup-io"
    with pytest.raises(JournalError) as caught:
        restore(tmp_path / "data", tmp_path / "file" / "new")
    assert caught.value.code == "backup-io"


async def test_what_killed_backups_left_goes_with_the_next_one_and_what_runs_stays(tmp_path: Path) -> None:
    await _stopped(tmp_path / "data")
    backups, theirs = tmp_path / "backups", tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    backups.mkdir()
    with building(backups / "of another broker", "*") as running:
        left = partial_name(backups / "monday")
        left.mkdir()
        (left / "homing.db").touch()
        partial_name(backups / "link").symlink_to(theirs)
        make_of_directory(tmp_path / "data", backups, "tuesday")
        assert running.is_dir()
        assert not left.exists()
    assert (theirs / "file").exists()
