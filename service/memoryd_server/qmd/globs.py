"""Match paths against the globs of qmd's collections. Pure.

The settings write the globs, and anyone who can name a file writes the paths. A glob is compiled to an automaton whose
states are followed in parallel, so that a match takes time in proportion to the path times the glob. A regular
expression would backtrack between its stars.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

_SUFFIX = ".md"
_MORE_THAN_GLOB = re.compile(r"[!@+?*]\(")
_LONGEST_CLASS = 256
_PIECE = re.compile(rf"\*\*/|\*\*|\\.|\[[^\]]{{1,{_LONGEST_CLASS}}}\]|.", re.DOTALL)

_Test = Callable[[str], object]


def matches(pattern: str, path: str) -> bool:
    """Return whether a glob matches a whole path.

    A glob may contain `*`, `?`, `**`, `[...]`, `{a,b}`, and commas between globs. Any other extended form matches every
    Markdown file.
    """
    if _MORE_THAN_GLOB.search(pattern):
        return path.endswith(_SUFFIX)
    return _compiled(pattern).accepts(path)


@dataclass(slots=True)
class _Automaton:
    """States by number, with their steps: `free` without a character, `steps` by one that passes a test."""

    free: list[list[int]] = field(default_factory=list)
    steps: list[list[tuple[_Test, int]]] = field(default_factory=list)
    last: int = 0

    def state(self) -> int:
        """Add a state."""
        self.free.append([])
        self.steps.append([])
        return len(self.free) - 1

    def accepts(self, text: str) -> bool:
        """Return whether the whole text leads from state 0 to `last`."""
        states = self._reached([0])
        for character in text:
            states = self._reached([to for state in states for test, to in self.steps[state] if test(character)])
            if not states:
                return False
        return self.last in states

    def _reached(self, states: list[int]) -> set[int]:
        reached = set(states)
        while states:
            following = [to for to in self.free[states.pop()] if to not in reached]
            reached.update(following)
            states += following
        return reached


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Automaton:
    automaton = _Automaton()
    at, end = automaton.state(), automaton.state()
    # The first and last state of the whole glob, then of each open brace.
    groups = [(at, end)]
    for piece in _PIECE.findall(pattern):
        if piece == "{":
            groups.append((at, automaton.state()))
        elif piece == ",":
            # A comma between whole globs means the same as one in braces.
            automaton.free[at].append(groups[-1][1])
            at = groups[-1][0]
        elif piece == "}" and len(groups) > 1:
            automaton.free[at].append(groups[-1][1])
            at = groups.pop()[1]
            continue
        following = automaton.state()
        if piece in {"{", ","}:
            automaton.free[at].append(following)
        else:
            _add(automaton, piece, at, following)
        at = following
    # A brace that is left open ends with the glob.
    for _, last in reversed(groups):
        automaton.free[at].append(last)
        at = last
    automaton.last = end
    return automaton


def _add(automaton: _Automaton, piece: str, at: int, to: int) -> None:
    """Add the steps of one piece from `at` to `to`, a new state."""
    if piece == "**/":
        inside = automaton.state()
        automaton.free[at].append(to)
        automaton.steps[to].append((_no_slash, inside))
        automaton.steps[inside] += [(_no_slash, inside), ("/".__eq__, to)]
    elif piece in {"**", "*"}:
        automaton.free[at].append(to)
        automaton.steps[to].append((_any if piece == "**" else _no_slash, to))
    else:
        automaton.steps[at].append((_test(piece), to))


def _test(piece: str) -> _Test:
    if piece == "?":
        return _no_slash
    if piece.startswith("[") and len(piece) > 1:
        return _class(piece[1:-1].replace("\\", "\\\\"))
    return (piece[1:] if piece.startswith("\\") and len(piece) > 1 else piece).__eq__


def _class(inside: str) -> _Test:
    try:
        return re.compile(f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]").match
    except re.error:
        # A reversed range contains no character.
        return lambda _: False


def _any(_: str) -> bool:
    return True


def _no_slash(character: str) -> bool:
    return character != "/"
