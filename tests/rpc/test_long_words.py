"""Over gRPC: a word longer than a chunk finds its note."""

import hashlib

import pytest

from rpc.wire import paths

HEX = "".join(hashlib.sha512(bytes([number])).hexdigest() for number in range(40))
# A word of letters alone, without a place where it could be cut.
LETTERS = HEX.translate(str.maketrans("0123456789", "ghijklmnop"))

WORDS = {
    "key": HEX[:3_900],
    "identifier": LETTERS[:2_500],
    "URL of parts": "https://example.org/" + "/".join(HEX[start : start + 20] for start in range(0, 3_200, 20)),
    "URL with a long value": f"https://example.org/download?signature={HEX[:3_000]}&expires=1700000000",
}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
async def test_a_word_longer_than_a_chunk_finds_its_note_and_shows_where_it_begins(home, serve, word):
    prose = "the red ferry sails at dawn and the green tram at noon. " * 12
    home.write(long=f"# Access\n\n{prose}{word} {prose}", other=f"# Access\n\n{prose}", third=f"{prose}{HEX[::-1]}")
    running = await serve()
    await running.synced()
    answer = await running.search(word)
    assert paths(answer)[:1] == ["memory/long.md"]
    assert word[:100] in answer.results[0].snippet
