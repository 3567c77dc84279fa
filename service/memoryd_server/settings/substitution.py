"""`${NAME}` in a value reads the environment; `$${NAME}` is the text itself."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


class UnsetVariable(Exception):
    """A value names a variable that is not set, or blank; the message says which, and where."""

    def __init__(self, where: str, name: str) -> None:
        super().__init__(f"{where} names the variable {name}, which is not set")


def filled(text: str, where: str, environ: Mapping[str, str]) -> str:
    """`text`, trimmed, with the values of the variables that it names. `where` is its key, for messages.

    Raises:
        UnsetVariable: one of them is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        set_to = environ.get(found[2], "").strip()
        if not set_to:
            raise UnsetVariable(where, found[2])
        return set_to

    return _REFERENCE.sub(value, text).strip()
