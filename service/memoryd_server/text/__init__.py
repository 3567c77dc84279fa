"""Text into words: one analyzer for indexed text and queries; pure."""

from memoryd_server.text.analyzer import ANALYZER_VERSION, Analyzer
from memoryd_server.text.languages import stop_words
from memoryd_server.text.stemming import normalized
from memoryd_server.text.terms import QueryTerm, TermKind
from memoryd_server.text.word_finder import LineMatches, WordFinder

__all__ = [
    "ANALYZER_VERSION",
    "Analyzer",
    "LineMatches",
    "QueryTerm",
    "TermKind",
    "WordFinder",
    "normalized",
    "stop_words",
]
