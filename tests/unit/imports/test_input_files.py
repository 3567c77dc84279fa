"""The files behind the arguments of an import: files, folders and zip archives."""

import os
import struct
import zipfile
from datetime import UTC, datetime

import pytest

from memoryd_server.errors import InvalidImport
from memoryd_server.imports.input_files import MAX_DIRECTORY_BYTES, MAX_RATIO, InputFiles

DATA = b'[{"a": 1}]'
LOOKED_FOR = "conversations.json"


def is_wanted(path):
    return path.rpartition("/")[2] == "conversations.json"


def find(*arguments):
    return InputFiles(arguments, is_wanted, LOOKED_FOR)


def write(path, data=DATA):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def archive(path, *members, data=DATA, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for member in members:
            file.writestr(member, data)
    return path


def read(file):
    with file.open() as stream:
        return stream.read()


def test_named_file_is_accepted_whatever_its_name(tmp_path):
    path = write(tmp_path / "my export.txt")
    os.utime(path, ns=(5, 1_700_000_000_123_456_789))
    (file,) = find(path)
    assert (file.name, file.path, file.size_bytes, file.modified_ns) == (
        str(path),
        "",
        len(DATA),
        1_700_000_000_123_456_789,
    )
    assert read(file) == read(file) == DATA


def test_folder_is_searched_in_the_order_of_paths(tmp_path):
    for name in ("b/conversations.json", "conversations.json", "a/deep/er/conversations.json", "other.json"):
        write(tmp_path / name)
    paths = ["a/deep/er/conversations.json", "b/conversations.json", "conversations.json"]
    assert [file.path for file in find(tmp_path)] == paths
    assert [file.name for file in find(tmp_path)] == [f"{tmp_path}/{path}" for path in paths]


def test_links_in_a_folder_are_not_followed(tmp_path):
    elsewhere = write(tmp_path / "elsewhere" / "conversations.json")
    folder = tmp_path / "export"
    write(folder / "own" / "conversations.json")
    (folder / "linked").symlink_to(elsewhere.parent)
    (folder / "conversations.json").symlink_to(elsewhere)
    (folder / "loop").symlink_to(folder)
    assert [file.path for file in find(folder)] == ["own/conversations.json"]
    # An argument itself can be a link.
    assert [file.path for file in find(folder / "linked")] == ["conversations.json"]


def test_members_of_an_archive_are_read_without_unpacking_it(tmp_path):
    path = archive(tmp_path / "export.zip", "chat.html", "sub/conversations.json", "conversations.json")
    files = find(path)
    assert [(file.name, file.path, file.size_bytes) for file in files] == [
        (f"{path}/sub/conversations.json", "sub/conversations.json", len(DATA)),
        (f"{path}/conversations.json", "conversations.json", len(DATA)),
    ]
    assert [read(file) for file in files] == [DATA, DATA]
    assert list(tmp_path.iterdir()) == [path]


def test_archive_is_recognized_by_its_content(tmp_path):
    (file,) = find(archive(tmp_path / "download", "conversations.json"))
    assert read(file) == DATA


def test_time_of_a_member_counts_as_utc(tmp_path):
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as file:
        file.writestr(zipfile.ZipInfo("conversations.json", (2025, 3, 14, 9, 26, 52)), DATA)
        file.writestr(zipfile.ZipInfo("sub/conversations.json", (1980, 0, 0, 0, 0, 0)), DATA)
    os.utime(tmp_path / "export.zip", ns=(5, 7_000_000_000))
    at, otherwise = find(tmp_path / "export.zip")
    assert at.modified_ns == datetime(2025, 3, 14, 9, 26, 52, tzinfo=UTC).timestamp() * 1e9
    assert otherwise.modified_ns == 7_000_000_000


@pytest.mark.attacks
@pytest.mark.parametrize(
    "name",
    [
        "../../conversations.json",
        "/etc/conversations.json",
        "C:\\Windows/conversations.json",
        "a/../../b/conversations.json",
        "\x1b[31mred\r\n/conversations.json",
        "é" * 2000 + "/conversations.json",
    ],
)
def test_member_with_a_hostile_name_is_read_where_it_is(tmp_path, name):
    folder = tmp_path / "in"
    folder.mkdir()
    (file,) = find(archive(folder / "export.zip", name))
    assert read(file) == DATA
    assert file.name.isprintable()
    assert len(file.name) <= 301
    assert list(tmp_path.rglob("*")) == [folder, folder / "export.zip"]


def test_members_with_the_same_name_are_both_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as file:
        file.writestr("conversations.json", b"[1]")
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("conversations.json", b"[2]")
    assert [read(file) for file in find(tmp_path / "export.zip")] == [b"[1]", b"[2]"]


def test_archives_in_a_folder_are_searched_if_the_folder_has_no_file(tmp_path):
    archive(tmp_path / "part-b.zip", "conversations.json", data=b"b")
    archive(tmp_path / "part-a.ZIP", "conversations.json", data=b"a")
    archive(tmp_path / "other.zip", "photo.png")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    archive(tmp_path / "deep" / "er" / "part.zip", "conversations.json", data=b"c")
    assert [read(file) for file in find(tmp_path)] == [b"c", b"a", b"b"]
    write(tmp_path / "sub" / "conversations.json", b"d")
    assert [read(file) for file in find(tmp_path)] == [b"d"]


def test_damaged_archive_in_a_folder_does_not_hide_the_others(tmp_path):
    archive(tmp_path / "a.zip", "conversations.json")
    write(tmp_path / "b.zip", b"PK\x03\x04 and nothing else")
    files = find(tmp_path)
    assert [read(file) for file in files] == [DATA]
    (bad,) = files.unreadable
    assert bad.place == f"{tmp_path}/b.zip"
    assert "b.zip is not a zip archive, or is damaged or incomplete" in bad.reason


def test_archives_beside_files_are_reported_if_they_contain_such_files(tmp_path):
    write(tmp_path / "conversations.json", b"a")
    archive(tmp_path / "memories.zip", "conversations.json", data=b"b")
    archive(tmp_path / "attached.zip", "photo.png")
    with find(tmp_path) as files:
        assert [read(file) for file in files] == [b"a"]
        (left_out,) = files.unreadable
    assert left_out.place == f"{tmp_path}/memories.zip"
    assert left_out.reason.endswith("the folder to import also contains unpacked files; import it separately")


def test_folders_and_files_that_vanish_during_the_search_do_not_hide_the_others(tmp_path):
    write(tmp_path / "conversations.json")
    write(tmp_path / "sub" / "conversations.json")
    write(tmp_path / "vanishes.json")

    def is_found(path):
        if path == "vanishes.json":
            (tmp_path / path).unlink()
            (tmp_path / "sub").rename(tmp_path / "renamed")
        return True

    files = InputFiles([tmp_path], is_found, LOOKED_FOR)
    assert [file.path for file in files] == ["conversations.json"]
    assert sorted((each.place, each.reason) for each in files.unreadable) == [
        (f"{tmp_path}/sub", "it cannot be read: No such file or directory"),
        (f"{tmp_path}/vanishes.json", "it cannot be read: No such file or directory"),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folder_without_access_does_not_hide_the_others(tmp_path):
    write(tmp_path / "conversations.json")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    files = find(tmp_path)
    assert [file.path for file in files] == ["conversations.json"]
    assert [each.place for each in files.unreadable] == [str(locked)]
    # With nothing else to import, the folder is still named.
    (tmp_path / "conversations.json").unlink()
    assert [each.place for each in find(tmp_path).unreadable] == [str(locked)]


def test_progress_counts_the_unpacked_bytes(tmp_path):
    plain = write(tmp_path / "x.json", b"x" * 1000)
    files = find(plain, archive(tmp_path / "export.zip", "conversations.json", data=b"abc" * 400))
    assert (files.total_bytes, files.bytes_read, len(files)) == (2200, 0, 2)
    first, second = files
    read(first)
    assert files.bytes_read == 1000
    read(second)
    assert files.bytes_read == files.total_bytes


def test_closed_archives_are_not_read(tmp_path):
    with find(archive(tmp_path / "export.zip", "conversations.json")) as files:
        (file,) = files
    with pytest.raises((OSError, ValueError)):
        read(file)


def test_missing_argument_is_refused(tmp_path):
    with pytest.raises(InvalidImport, match=r"cannot read .*/none\.json: No such file or directory"):
        find(tmp_path / "none.json")


def test_unreadable_argument_is_refused(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InvalidImport, match=r"cannot read .*/loop"):
        find(loop)


def test_special_file_is_refused_without_reading_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidImport, match="pipe is neither a file nor a folder"):
        find(tmp_path / "pipe")


def test_arguments_without_a_file_of_the_format_are_refused_with_what_was_looked_for(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    other = archive(tmp_path / "other.zip", "photo.png")
    with pytest.raises(InvalidImport) as refused:
        find(empty, other)
    assert refused.value.message == f"nothing to import in {empty}, {other}: it contains no conversations.json"
    assert len(find(empty, other, write(tmp_path / "conversations.json"))) == 1


def test_archive_of_archives_has_to_be_unpacked(tmp_path):
    inner = archive(tmp_path / "inner.zip", "conversations.json")
    bundle = archive(tmp_path / "bundle.zip", "Activity/Conversations__1-chatgpt-0001.zip", data=inner.read_bytes())
    with pytest.raises(InvalidImport, match="it contains other archives: unpack it, and import the folder"):
        find(bundle)
    with zipfile.ZipFile(bundle) as file:
        file.extractall(tmp_path / "unpacked")
    assert [read(each) for each in find(tmp_path / "unpacked")] == [DATA]


@pytest.mark.parametrize("cut", [0, 3, 30, 60, -1])
def test_incomplete_archive_is_refused(tmp_path, cut):
    path = archive(tmp_path / "export.zip", "conversations.json")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InvalidImport, match=r"export\.zip is not a zip archive, or is damaged or incomplete"):
        find(path)


def test_damaged_member_fails_as_an_error_of_the_file(tmp_path):
    path = archive(tmp_path / "export.zip", "conversations.json", data=os.urandom(5000), compression=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    (file,) = find(path)
    with pytest.raises(OSError, match="the archive is damaged"):
        read(file)


def test_encrypted_member_is_refused(tmp_path):
    path = archive(tmp_path / "export.zip", "conversations.json", compression=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    (file,) = find(path)
    with pytest.raises(OSError, match="it is encrypted"):
        file.open()


@pytest.mark.attacks
def test_member_that_unpacks_to_hundreds_of_times_its_size_is_refused(tmp_path):
    (file,) = find(archive(tmp_path / "bomb.zip", "conversations.json", data=b"[" + b" " * 50_000_000))
    assert file.size_bytes > MAX_RATIO * 1000
    with pytest.raises(OSError, match="compressed to less than 1/200 of its size"):
        file.open()


@pytest.mark.attacks
def test_archive_with_too_long_a_list_of_members_is_refused_before_it_is_read(tmp_path):
    size = MAX_DIRECTORY_BYTES + 1
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0)
    with (tmp_path / "long.zip").open("wb") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(end)
    with pytest.raises(InvalidImport, match="its list of members is too long"):
        find(tmp_path / "long.zip")
