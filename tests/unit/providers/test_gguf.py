import struct

import pytest

from memoryd_server.providers.model_files import BadModelFile, ModelHeader, read_header


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


ARCHITECTURE = pair("general.architecture", 8, text("bert"))
WINDOW = pair("bert.context_length", 4, struct.pack("<I", 512))
DIMENSIONS = pair("bert.embedding_length", 4, struct.pack("<I", 384))
WORDS = pair("words", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b"))
NUMBERS = pair("numbers", 9, struct.pack("<IQ", 5, 3) + bytes(12))


def written(tmp_path, *pairs, magic=b"GGUF", version=3, count=None):
    path = tmp_path / "m.gguf"
    path.write_bytes(magic + struct.pack("<IQQ", version, 0, len(pairs) if count is None else count) + b"".join(pairs))
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_the_head_is_found_behind_other_things(tmp_path, version):
    path = written(tmp_path, WORDS, NUMBERS, DIMENSIONS, ARCHITECTURE, WINDOW, version=version)
    assert read_header(path) == ModelHeader("bert", 512, 384)


@pytest.mark.parametrize(
    ("options", "pairs", "why"),
    [
        ({"magic": b"PK\3\4"}, [ARCHITECTURE], "not a GGUF"),
        ({"version": 1}, [ARCHITECTURE], "not a GGUF"),
        ({}, [ARCHITECTURE, WINDOW], "has no context length"),
        ({"count": 9}, [ARCHITECTURE, WINDOW], "damaged"),
        ({}, [pair("x", 99, b"")], "damaged"),
        ({}, [pair("x", 8, struct.pack("<Q", 2**60))], "damaged"),
        ({}, [pair("x", 9, struct.pack("<IQ", 4, 2**61))], "damaged"),
        ({}, [ARCHITECTURE, pair("bert.context_length", 4, bytes(4)), DIMENSIONS], "at least 1"),
    ],
)
def test_an_unusable_model_is_refused(tmp_path, options, pairs, why):
    with pytest.raises(BadModelFile, match=why):
        read_header(written(tmp_path, *pairs, **options))


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "m.gguf").touch()
    with pytest.raises(BadModelFile):
        read_header(tmp_path / "m.gguf")
