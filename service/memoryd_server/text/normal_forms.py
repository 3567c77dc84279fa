"""Unicode's normal forms, in time that grows with the text alone.

`unicodedata.normalize` puts the marks on one letter in their order by moving each past its neighbours, which takes the
square of their number: minutes for a megabyte of accents that stand in the wrong order.
"""

import re
import unicodedata
from itertools import groupby
from typing import Literal

NormalForm = Literal["NFC", "NFD", "NFKC"]

# No script puts so many marks on a letter that this would matter to ordinary text.
_MANY = 32
# Marks, and the two letters that compatibility makes marks of; other characters that are no letters do no harm here.
_LONG_RUN = re.compile(rf"[\W\uff9e\uff9f]{{{_MANY},}}")


def normalized(form: NormalForm, text: str) -> str:
    """The same as `unicodedata.normalize(form, text)`, a run of marks in n log n."""
    if len(text) >= _MANY and not text.isascii():
        text = _LONG_RUN.sub(lambda run: _decomposed(run[0], compatibly=form == "NFKC"), text)
    return unicodedata.normalize(form, text)


def _decomposed(run: str, *, compatibly: bool) -> str:
    """`run` with each character taken apart and its marks in canonical order; the normal forms of both are the same."""
    apart = "".join(unicodedata.normalize("NFKD" if compatibly else "NFD", char) for char in run)
    marks = groupby(apart, key=lambda char: unicodedata.combining(char) > 0)
    return "".join(char for are, some in marks for char in (sorted(some, key=unicodedata.combining) if are else some))
