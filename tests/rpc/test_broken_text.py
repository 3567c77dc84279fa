"""Whatever bytes a file holds, every text of every reply is valid, and what a search shows can be read."""

import os
import random

import pytest

from memoryd.v1 import memory_pb2
from rpc.wire import paths

FILES = 40
TORN = (b"\xff\xfe", b"\xc3", b"\xe4\xbc", b"\xf0\x9f\xa6", b"\xed\xa0\x80", b"\xc0\xaf", b"\xef\xbf\xbe")
WHOLE = ("\0", "\x1b[2J", "\r", "\r\n", "\n", " ", "会议", "a\u0301\u0323", "🦩\U0001f468\u200d\U0001f469é")
SCRAPS = (*TORN, *(text.encode() for text in WHOLE))


def broken(chance, word):
    """Some thousand bytes of scraps and noise around a word that finds them."""
    around = [b"".join([*chance.choices(SCRAPS, k=60), chance.randbytes(chance.randrange(80))]) for _ in range(8)]
    at = chance.randrange(len(around) + 1)
    return b" ".join([*around[:at], f" {word} ".encode(), *around[at:]])


@pytest.mark.parametrize("seed", range(3))
async def test_every_reply_about_broken_files_is_valid_text(serve, home, seed):
    chance = random.Random(seed)
    for number in range(FILES):
        home.put(f"memory/n{number}.md", broken(chance, f"heron{number}x"))
    with open(os.fsencode(home.workspace / "memory") + b"/caf\xe9.md", "wb") as file:  # noqa: PTH123, ASYNC230 -- bytes
        file.write(b"heron")
    running = await serve()
    done = await running.synced()
    assert (done.indexed_files, done.failed_files) == (FILES, 1)
    for number in range(FILES):
        # A budget at every length cuts at every place.
        most = chance.randrange(1, 700)
        answer = await running.search(
            f"heron{number}x", max_snippet_chars=most, citations=memory_pb2.CITATION_MODE_OFF, explain=True
        )
        assert paths(answer) == [f"memory/n{number}.md"]
        (hit,) = answer.results
        lines = hit.snippet_end_line - hit.snippet_start_line + 1
        shown = await running.get(hit.path, start_line=hit.snippet_start_line, line_count=lines)
        indexed = shown.text if home.store.is_sqlite else shown.text.replace("\0", "\ufffd")
        assert hit.snippet in indexed.replace("\r\n", "\n")
        whole = (await running.get(hit.path, line_count=2_000)).text
        assert whole == (home.workspace / hit.path).read_bytes().decode("utf-8", "replace")
    assert len((await running.files(page_size=1_000)).files) == FILES + 1
    assert len((await running.status()).failed_files) == 1
