"""Words: the one analyzer of what is indexed and of what is asked."""

from memoryd_server.text.analyzer import ANALYZER_VERSION, Analyzer, WordFinder
from memoryd_server.text.terms import QueryTerm, TermKind

__all__ = ["ANALYZER_VERSION", "Analyzer", "QueryTerm", "TermKind", "WordFinder"]
