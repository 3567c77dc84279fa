"""Neighbours of better results give way; only the order changes."""

from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.model import Source
from memoryd_server.search.neighbours import are_adjacent, spread
from memoryd_server.search.query import Candidate
from memoryd_server.store.rows import ChunkRow

P = 0.08


MERGED_CHARS = 100


def row(number, path="a.md", source=Source.MEMORY, lines=None, width=60):
    first, last = lines or (10 * number, 10 * number + 5)
    text = "\n".join(["x" * width, *[""] * (last - first)])
    return ChunkRow(number, path, source, first, last, text, "", 0, 0)


def order(scores, rows, places=10):
    candidates = [Candidate(number, score) for number, score in scores.items()]
    return spread(candidates, {each.id: each for each in rows}, P, places, MERGED_CHARS)


def shown(found):
    return [(c.chunk_id, round(c.adjacent, 3)) for c in found]


def test_a_neighbour_of_a_better_chunk_moves_behind_one_of_another_file():
    found = order({1: 0.9, 2: 0.85, 7: 0.8}, [row(1), row(2), row(7, "b.md")])
    assert shown(found) == [(1, 0), (7, 0), (2, P)]
    assert [c.score for c in found] == [0.9, 0.8, 0.85]


def test_a_chunk_between_two_better_ones_pays_for_both():
    found = order({1: 0.9, 3: 0.89, 2: 0.88, 7: 0.73}, [row(1), row(2), row(3), row(7, "b.md")])
    assert shown(found) == [(1, 0), (3, 0), (7, 0), (2, 2 * P)]


def test_a_neighbour_that_is_better_by_more_than_the_penalty_keeps_its_place():
    assert shown(order({1: 0.9, 2: 0.85, 7: 0.7}, [row(1), row(2), row(7, "b.md")])) == [(1, 0), (2, P), (7, 0)]


def test_chunks_of_other_files_and_sources_and_distant_ones_are_not_adjacent():
    rows = [row(1), row(2, "b.md"), row(3, source=Source.SESSIONS), row(5)]
    found = order({1: 0.9, 2: 0.8, 3: 0.7, 5: 0.6}, rows)
    assert shown(found) == [(1, 0), (2, 0), (3, 0), (5, 0)]


def test_chunks_of_a_file_are_adjacent_if_their_ids_are_consecutive():
    assert are_adjacent(row(1, lines=(1, 10)), row(2, lines=(40, 50)))
    assert are_adjacent(row(2, lines=(8, 20)), row(1, lines=(1, 10)))
    # Between them is the first part of the long line 11.
    assert not are_adjacent(row(1, lines=(1, 10)), row(3, lines=(11, 20)))


def test_chunks_of_a_transcript_are_adjacent_if_their_lines_touch():
    def chunk(number, lines):
        return row(number, lines=lines)._replace(line_numbers=tuple(range(lines[0], lines[1] + 1)))

    assert are_adjacent(chunk(1, (1, 10)), chunk(9, (11, 20)))
    assert are_adjacent(chunk(9, (8, 20)), chunk(1, (1, 10)))
    assert not are_adjacent(chunk(1, (1, 10)), chunk(9, (12, 20)))
    # Parts of one long line.
    assert not are_adjacent(chunk(1, (2, 2)), chunk(3, (2, 2)))


def test_chunks_that_are_shown_as_one_result_are_not_penalised():
    rows = [row(1, lines=(1, 2), width=30), row(2, lines=(3, 4), width=30), row(7, "b.md")]
    assert shown(order({1: 0.9, 2: 0.85, 7: 0.8}, rows)) == [(1, 0), (2, 0), (7, 0)]
    wide = [row(1, lines=(1, 2)), row(2, lines=(3, 4)), row(7, "b.md")]
    assert shown(order({1: 0.9, 2: 0.85, 7: 0.8}, wide)) == [(1, 0), (7, 0), (2, P)]


def test_only_the_first_places_are_decided():
    scores = {1: 0.9, 2: 0.85, 3: 0.84, 7: 0.8}
    rows = [row(1), row(2), row(3), row(7, "b.md")]
    assert [c.chunk_id for c in order(scores, rows, places=2)] == [1, 2, 3, 7]
    assert [c.chunk_id for c in order(scores, rows, places=3)] == [1, 3, 2, 7]


def test_a_chunk_that_was_not_read_never_overtakes_one_that_was():
    numbers = range(1, 31)
    scores = {number: 1 - number / 1000 for number in numbers}
    found = [c.chunk_id for c in order(scores, [row(number) for number in numbers[:20]], places=20)]
    assert set(found[:20]) == set(numbers[:20])
    assert found[20:] == [*numbers[20:]]


def test_of_the_parts_of_one_line_only_those_that_follow_one_another_are_adjacent():
    parts = [row(number, lines=(7, 7)) for number in range(1, 5)]
    assert are_adjacent(parts[0], parts[1])
    assert not are_adjacent(parts[0], parts[2])


def greedy(candidates, rows, penalty, places):
    """The definition, in cubic time."""
    rest, chosen = list(candidates[:places]), []

    def value(candidate):
        own = rows.get(candidate.chunk_id)
        others = [rows[c.chunk_id] for c in chosen if c.chunk_id in rows] if own else []
        return candidate.score - penalty * sum(own.path == o.path and are_adjacent(own, o) for o in others)

    while rest:
        best = max(rest, key=value)
        rest.remove(best)
        chosen.append(best)
    return [c.chunk_id for c in (*chosen, *candidates[places:])]


# Sixteenths are exact in binary, so equal values are equal in both computations.
SCORES = st.integers(0, 20).map(lambda n: n / 16)


@given(st.lists(st.tuples(SCORES, st.sampled_from("ab"), st.booleans()), max_size=15), st.integers(0, 20))
def test_the_order_is_that_of_the_definition(parts, places):
    parts = sorted(parts, reverse=True)
    candidates = [Candidate(number, score) for number, (score, _, _) in enumerate(parts)]
    rows = {number: row(number, path) for number, (_, path, known) in enumerate(parts) if known}
    found = spread(candidates, rows, 1 / 16, places, MERGED_CHARS)
    assert [c.chunk_id for c in found] == greedy(candidates, rows, 1 / 16, places)
    assert [candidates[c.chunk_id].score for c in found] == [c.score for c in found]
