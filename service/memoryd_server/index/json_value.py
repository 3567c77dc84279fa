"""Values that the index remembers as a line of JSON."""

import json
from dataclasses import fields
from typing import Any, Self

from memoryd_server.foreign_text import parse_json


class JsonValue:
    """Gives a dataclass of plain fields its line, and makes it again from one."""

    __slots__ = ()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """What `to_json` wrote; None for anything else."""
        try:
            return cls(**parse_json(text))
        except (TypeError, ValueError):
            return None

    def to_json(self) -> str:
        """One line that equals another exactly when the values do."""
        return json.dumps(self.fields(), sort_keys=True)

    def fields(self) -> dict[str, Any]:
        """Each field's value by its name."""
        # Not `asdict`, which copies the values: searches ask for this.
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]  # a dataclass
