"""The headings above a chunk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.markdown import breadcrumbs, chunk_markdown


@pytest.mark.parametrize(
    ("body", "line", "expected"),
    [
        ("text", 1, ""),
        ("# A\ntext", 1, ""),
        ("# A\ntext", 2, "A"),
        ("# A\n## B\ntext", 3, "A > B"),
        ("# A\n## B\n## C\ntext", 3, "A"),
        ("# A\n## B\n## C\ntext", 4, "A > C"),
        ("# A\n### B\n## C\ntext", 4, "A > C"),
        ("## A\n# B\ntext", 3, "B"),
        ("# A ##\r\n  ##\tB  c  #\r\ntext", 3, "A > B c"),
        ("# C#\ntext", 2, "C#"),
        ("#tag\n    # code\n####### seven\ntext", 4, ""),
        ("#\ntext", 2, ""),
        ("# A\n#\ntext", 3, ""),
        ("# A\n## ##\n### B\ntext", 4, "A > B"),
        ("# A\n```sh\n# no\n```\ntext", 5, "A"),
        ("# A\n~~~\n```\n# no\n~~~~\n## B\ntext", 7, "A > B"),
        ("````\n```\n# no\n````\n# B\ntext", 6, "B"),
        ("```\n# no\n``` x\n# no\ntext", 5, ""),
        ("``` a`b\n# B\ntext", 3, "B"),
        ("```\n# no", 2, ""),
        ("Title\n=====\n# A\x0bb\ntext", 4, "A b"),
    ],
)
def test_the_breadcrumb_of_a_line(body, line, expected):
    assert breadcrumbs(body, [line]) == [expected]


def test_each_line_gets_its_own():
    body = "# A\none\n## B\ntwo\n# C\nthree"
    assert breadcrumbs(body, [1, 2, 3, 4, 4, 5, 6]) == ["", "A", "A", "A > B", "A > B", "", "C"]


def test_the_outermost_titles_are_left_out_of_a_long_breadcrumb():
    body = "\n".join(["# " + "a" * 150, "## " + "b" * 60, "### " + "c" * 60, "text"])
    assert breadcrumbs(body, [4]) == ["b" * 60 + " > " + "c" * 60]


def test_a_title_longer_than_a_breadcrumb_is_cut():
    assert breadcrumbs("# " + "a" * 1000 + "\ntext", [2]) == ["a" * 200]


def test_chunks_carry_the_breadcrumb_of_their_first_line():
    body = "# Trip\n" + "x" * 1590 + "\n## Packing\n" + "y" * 1588 + "\nz"
    assert [(c.start_line, c.breadcrumb) for c in chunk_markdown(body, 400, 0, first_line=5)] == [
        (5, ""),
        (7, "Trip"),
        (9, "Trip > Packing"),
    ]


@given(st.text(st.sampled_from("#`~ a\n\r\t")), st.lists(st.integers(1, 30), max_size=10))
def test_any_text_has_a_breadcrumb_of_bounded_length_for_each_line(body, lines):
    crumbs = breadcrumbs(body, sorted(lines))
    assert len(crumbs) == len(lines)
    assert all(len(crumb) <= 200 and "\n" not in crumb for crumb in crumbs)
