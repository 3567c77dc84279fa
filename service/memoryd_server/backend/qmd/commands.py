"""What is asked of the command, as arguments. Pure.

Every call names its index and its collections: without the first, a `.qmd` folder above the working directory would
replace ours, and without the second an empty configuration would be no filter at all.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

# In these, `index` is the name of the default index, whose files are where the environment says.
_INDEX = ("--index", "index")
# At the start of a question qmd would take these for its query language.
_TYPED = re.compile(r"^(lex|vec|hyde|intent|expand):", re.IGNORECASE)
_BREAKS = re.compile(r"[\0\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class Verb(StrEnum):
    """How qmd searches: by words, by meaning, or by both with its models' help."""

    SEARCH = "search"
    VSEARCH = "vsearch"
    QUERY = "query"


UPDATE = (*_INDEX, "update")
EMBED = (*_INDEX, "embed")
CLEANUP = (*_INDEX, "cleanup")
STATUS = (*_INDEX, "status")
VERSION = ("--version",)


def search(verb: Verb, question: str, collections: Sequence[str], limit: int) -> tuple[str, ...]:
    """The arguments of a search. The question is one argument after `--`, so that nothing in it is an option."""
    named = [part for name in collections for part in ("-c", name)]
    return (*_INDEX, verb.value, "--json", "-n", str(limit), *named, "--", one_line(verb, question))


def one_line(verb: Verb, question: str) -> str:
    """The question as qmd takes it: one line, and no query language of its own at the start."""
    line = _BREAKS.sub(" ", question).strip()
    return _TYPED.sub(r"\1 :", line) if verb is Verb.QUERY else line
