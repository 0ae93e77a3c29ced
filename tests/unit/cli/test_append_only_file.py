"""What is done to the store's append-only files before it starts."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.cli import append_only_file
from salmon.cli.append_only_file import (
    FOLDER,
    MANIFEST,
    ends_well,
    files_in,
    find_damage,
    find_loss,
    prepare_files,
    whole_until,
)
from salmon.errors import StartError

NOW = datetime(2026, 11, 19, 5, 30, tzinfo=UTC)


def command(*parts: str | bytes) -> bytes:
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded)


commands = st.lists(
    st.lists(st.binary(min_size=0, max_size=20), min_size=1, max_size=4).map(lambda parts: command(b"SET", *parts)),
    min_size=1,
    max_size=8,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store's directory with three whole commands."""
    folder = tmp_path / "redis" / FOLDER
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.1.base.rdb").write_bytes(b"VALKEY")
    (folder / "appendonly.aof.1.incr.aof").write_bytes(command("SELECT", "0") + command("SET", "a", "1") * 2)
    (folder / MANIFEST).write_text(
        "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    )
    return tmp_path / "redis"


def last(store: Path) -> Path:
    return store / FOLDER / "appendonly.aof.1.incr.aof"


@given(commands, st.data())
def test_a_file_cut_anywhere_keeps_every_whole_command(written: list[bytes], data: st.DataObject) -> None:
    content = b"".join(written)
    cut = data.draw(st.integers(0, len(content)))
    whole = max(sum(map(len, written[:k])) for k in range(len(written) + 1) if sum(map(len, written[:k])) <= cut)
    assert whole_until(content[:cut]) == (whole, whole)
    assert ends_well(content[:cut]) == (whole == cut)


@given(commands, st.integers(1, 5000))
def test_zeros_at_the_end_are_told_from_commands(written: list[bytes], zeros: int) -> None:
    content = b"".join(written)
    assert whole_until(content + bytes(zeros))[0] == len(content)
    assert not ends_well(content + bytes(zeros))


def test_an_open_transaction_goes_as_a_whole() -> None:
    before, opened = command("SET", "a", "1"), command("MULTI") + command("SET", "b", "2")
    assert whole_until(before + opened) == (len(before), len(before + opened))
    assert whole_until(before + opened + command("EXEC"))[0] == len(before + opened + command("EXEC"))
    assert not ends_well(before + opened)


@pytest.mark.parametrize(
    "tail", [bytes(4096), b"*3\r\n$3\r\nSET\r\n$1\r\n", b"*3\r\n$3\r\nSET" + bytes(100), b"\xff\x00"]
)
def test_a_damaged_end_is_cut_and_a_dated_copy_kept(store: Path, tmp_path: Path, tail: bytes) -> None:
    whole = last(store).read_bytes()
    last(store).write_bytes(whole + tail)
    sentence = prepare_files(store, tmp_path / "damaged", now=NOW)
    assert last(store).read_bytes() == whole
    copy = tmp_path / "damaged" / "appendonly.aof.1.incr.aof.20261119T053000Z"
    assert copy.read_bytes() == whole + tail
    assert f"its last {len(tail):,} bytes were removed" in sentence
    assert str(copy) in sentence
    assert prepare_files(store, tmp_path / "damaged", now=NOW) == ""


def test_a_whole_file_is_left_alone_and_only_its_end_is_read(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last(store).write_bytes(last(store).read_bytes() + command("SET", "b", "x" * 100) * 30_000)
    before, read_from = last(store).stat().st_mtime_ns, []
    real = append_only_file.whole_until
    monkeypatch.setattr(
        append_only_file, "whole_until", lambda content, start=0: read_from.append(start) or real(content, start)
    )
    assert prepare_files(store, tmp_path / "damaged") == ""
    assert last(store).stat().st_mtime_ns == before
    assert min(read_from) > 0
    assert not (tmp_path / "damaged").exists()


@pytest.mark.parametrize("tail", [bytes(range(256)), b"*3\r\n$3\r\nSET\r\n$1\r\n", bytes(4096)])
def test_a_damaged_end_is_found_in_one_pass(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tail: bytes
) -> None:
    monkeypatch.setattr(append_only_file, "_REPORT_BYTES", 1 << 20)
    whole = last(store).read_bytes() + command("SET", "b", "x" * 100) * 20_000
    last(store).write_bytes(whole + tail)
    parsed, real = 0, append_only_file._command

    def counted(content: append_only_file.Bytes, at: int) -> tuple[int, bytes]:
        nonlocal parsed
        parsed += 1
        return real(content, at)

    monkeypatch.setattr(append_only_file, "_command", counted)
    with caplog.at_level("INFO"):
        assert "were removed" in prepare_files(store, tmp_path / "damaged", now=NOW)
    assert last(store).read_bytes() == whole
    # All commands once, those of the last megabyte twice, and a few attempts in the tail.
    assert parsed < 20_003 + (1 << 20) / len(command("SET", "b", "x" * 100)) + len(tail)
    assert [record.fields["read_bytes"] >> 20 for record in caplog.records if "checked" in record.message] == [1, 2]


def test_the_place_of_damage_that_the_end_does_not_show_is_said(store: Path, tmp_path: Path) -> None:
    whole = last(store).read_bytes()
    last(store).write_bytes(whole + bytes(50) + command("SET", "b", "x" * 100) * 20_000)
    assert prepare_files(store, tmp_path / "damaged") == ""  # the store itself refuses such a file
    with pytest.raises(StartError, match=rf"is damaged at byte {len(whole)}, .* follow at byte {len(whole) + 50}"):
        find_damage(store)


def test_damage_with_commands_behind_it_is_left_alone_and_explained(store: Path, tmp_path: Path) -> None:
    content = last(store).read_bytes() + bytes(50) + command("SET", "c", "3") * 2
    last(store).write_bytes(content)
    with pytest.raises(StartError, match="is damaged at byte") as raised:
        prepare_files(store, tmp_path / "damaged")
    assert "truncate -s" in raised.value.hint
    assert last(store).read_bytes() == content


@pytest.mark.parametrize("manifest", [None, ""])
def test_files_without_their_list_are_not_started_with(store: Path, tmp_path: Path, manifest: str | None) -> None:
    listed = (store / FOLDER / MANIFEST).read_text()
    (store / FOLDER / MANIFEST).unlink()
    if manifest is not None:
        (store / FOLDER / MANIFEST).write_text(manifest)
    with pytest.raises(StartError, match="missing or empty") as raised:
        prepare_files(store, tmp_path / "damaged")
    assert [line.strip() for line in raised.value.hint.splitlines()[1:]] == listed.splitlines()


def test_a_listed_file_that_is_missing_is_named(store: Path, tmp_path: Path) -> None:
    (store / FOLDER / "appendonly.aof.1.base.rdb").unlink()
    with pytest.raises(StartError, match=r"1\.base\.rdb is missing"):
        prepare_files(store, tmp_path / "damaged")


def listed(store: Path, *lines: str) -> None:
    (store / FOLDER / MANIFEST).write_text("".join(f"file appendonly.aof.{line}\n" for line in lines))


BASE, INCREMENTAL = "1.base.rdb seq 1 type b", "1.incr.aof seq 1 type i"


def test_what_was_noted_is_missed_when_it_is_gone(store: Path, tmp_path: Path) -> None:
    noted = files_in(store)
    assert noted == {"appendonly.aof.1.base.rdb": 6, last(store).name: last(store).stat().st_size}
    assert find_loss(store, noted) is None
    listed(store, BASE)
    unlisted = find_loss(store, {})
    assert unlisted is not None
    assert "does not name it" in unlisted.message
    last(store).unlink()
    assert "is gone; it held" in getattr(find_loss(store, noted), "message", "")
    listed(store, BASE, INCREMENTAL)
    last(store).write_bytes(b"")
    assert "is empty; it held" in getattr(find_loss(store, noted), "message", "")
    shutil.rmtree(store / FOLDER)
    with pytest.raises(StartError, match="are gone") as raised:
        prepare_files(store, tmp_path / "damaged", noted=noted)
    assert "--start-empty" in raised.value.hint
    assert prepare_files(store, tmp_path / "damaged", noted=noted, start_empty=True) == ""


def test_what_is_not_listed_is_moved_aside_for_an_empty_start(store: Path, tmp_path: Path) -> None:
    content = last(store).read_bytes()
    listed(store, BASE)
    prepare_files(store, tmp_path / "damaged", start_empty=True, now=NOW)
    assert not last(store).exists()
    assert (tmp_path / "damaged" / f"{last(store).name}.20261119T053000Z").read_bytes() == content
    assert (store / FOLDER / "appendonly.aof.1.base.rdb").exists()


def test_a_rewrite_loses_nothing_wherever_it_is_killed(store: Path) -> None:
    noted = files_in(store)
    second = store / FOLDER / "appendonly.aof.2.incr.aof"
    second.write_bytes(b"")  # made, and not yet listed
    assert find_loss(store, noted) is None
    listed(store, BASE, INCREMENTAL, "2.incr.aof seq 2 type i")
    assert find_loss(store, noted) is None
    base = store / FOLDER / "appendonly.aof.2.base.rdb"
    base.write_bytes(b"VALKEY")  # written, and not yet listed
    assert find_loss(store, noted) is None
    listed(
        store,
        "2.base.rdb seq 2 type b",
        "1.base.rdb seq 1 type h",
        "1.incr.aof seq 1 type h",
        "2.incr.aof seq 2 type i",
    )
    assert find_loss(store, noted) is None
    assert files_in(store).keys() == {base.name, second.name}
    last(store).unlink()
    assert find_loss(store, noted) is None
    listed(store, "2.base.rdb seq 2 type b", "2.incr.aof seq 2 type i")  # the old base is left over
    assert find_loss(store, noted) is None


def test_an_older_backup_and_a_store_without_a_note_are_no_loss(store: Path) -> None:
    assert find_loss(store, {"appendonly.aof.7.base.rdb": 90, "appendonly.aof.9.incr.aof": 100}) is None
    assert find_loss(store, {name: size * 10 for name, size in files_in(store).items()}) is None
    assert find_loss(store, {}) is None
    last(store).write_bytes(b"")
    assert find_loss(store, {}) is None  # nothing was written yet
    assert find_loss(store, files_in(store)) is None


def test_leftovers_of_a_killed_rewrite_are_removed(store: Path, tmp_path: Path) -> None:
    for name in (
        "temp-rewriteaof-123.aof",
        "temp-rewriteaof-bg-9.aof",
        "temp-9.rdb",
        f"{FOLDER}/temp-appendonly.aof.manifest",
    ):
        (store / name).write_text("x")
    prepare_files(store, tmp_path / "damaged")
    assert [path.name for path in store.rglob("temp-*")] == []


def test_a_directory_that_was_never_used_has_nothing_to_check(tmp_path: Path) -> None:
    assert prepare_files(tmp_path / "none", tmp_path / "damaged") == ""
