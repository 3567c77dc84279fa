"""What a run of letters is found by: the tokens it is indexed under, and the terms it asks for.

Each term of a run is among the run's tokens, or begins one of them where `prefix` is set, so that a text is found by
any of its own words.
"""

import re
from dataclasses import dataclass

from memoryd_server.text.identifiers import word_forms
from memoryd_server.text.runs import Run, Script

_SEA_GRAM = 3
_CLUSTER = re.compile("sm*")


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A token to look for; with `prefix`, any token that begins with it."""

    text: str
    prefix: bool = False


def index_tokens(run: Run) -> list[str]:
    """Returns the tokens that a text with this run is indexed under."""
    if run.script is Script.CJK:
        # The last slice is the last character alone, so that every single character begins some token.
        return [run.text[i : i + 2] for i in range(len(run.text))]
    if run.script is Script.SEA:
        clusters = _clusters(run)
        return ["".join(clusters[i : i + _SEA_GRAM]) for i in range(len(clusters))]
    return word_forms(run)


def query_terms(run: Run) -> list[QueryTerm]:
    """Returns the terms that this run asks for."""
    if run.script is Script.CJK:
        return _gram_terms(list(run.text), 2)
    if run.script is Script.SEA:
        return _gram_terms(_clusters(run), _SEA_GRAM)
    return [QueryTerm(form) for form in word_forms(run)]


def _clusters(run: Run) -> list[str]:
    return [run.text[match.start() : match.end()] for match in _CLUSTER.finditer(run.shape)]


def _gram_terms(units: list[str], size: int) -> list[QueryTerm]:
    if len(units) < size:
        return [QueryTerm("".join(units), prefix=True)]
    return [QueryTerm("".join(units[i : i + size])) for i in range(len(units) - size + 1)]
