"""The output of `memoryd init` and its questions at a terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.prompt import Confirm, Prompt
from rich.table import Table
from rich.text import Text

from memoryd_server.cli.init_discovery import likely_folders, survey_folder
from memoryd_server.cli.init_embedding import EmbeddingChoice
from memoryd_server.cli.options import printable

_MAX_DIGITS = 3


class Questions:
    """Prints text, and asks questions if it is interactive. Nothing is printed if it is quiet."""

    def __init__(self, *, interactive: bool, quiet: bool) -> None:
        self.interactive = interactive
        self._console = Console(quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line, without control characters."""
        self._console.print(_plain(text))

    def confirm(self, question: str) -> bool:
        """Ask for yes or no; the default is no."""
        return Confirm.ask(_plain(question), default=False, console=self._console)

    def ask(self, question: str, default: str = "") -> str:
        """Ask for a text."""
        shown = bool(default)
        return Prompt.ask(_plain(question), default=default, show_default=shown, console=self._console).strip()

    def ask_folder(self, home: Path, default: Path) -> Path | None:
        """Ask for the folder of the notes until it exists; return None for a new memory in `default`."""
        found = likely_folders(home)
        for number, folder in enumerate(found, 1):
            self.say(f"  {number}. {folder}: {survey_folder(folder).text()}")
        numbers = f"a number from 1 to {len(found)}, or " if found else ""
        question = f"Where are your notes? Enter {numbers}a folder; empty starts a new memory in {default}"
        while True:
            text = self.ask(question)
            if not text:
                return None
            number = _number(text, len(found))
            chosen = found[number - 1] if number else existing_folder(text)
            if chosen is not None:
                return chosen
            self.say(f"{text} is not a folder.")

    def ask_provider(self, choices: Sequence[EmbeddingChoice]) -> EmbeddingChoice:
        """Ask for one of the choices that can be used; for one that sends text to another machine, ask again."""
        table = Table("", "search by meaning with", "sends", "cost, without transcripts", "", box=None)
        for number, each in enumerate(choices, 1):
            name = f"{each.provider} ({each.model or 'no model'})"
            name = "nothing: keywords only" if each.provider == "none" else name
            problem = each.problem and f"first: {each.problem}"
            table.add_row(*map(_plain, (f"{number}.", name, each.sends, each.cost, problem)))
        self._console.print(table)
        while True:
            number = _number(self.ask("Which one?", "1"), len(choices))
            chosen = choices[number - 1]
            if not number:
                self.say(f"Enter a number from 1 to {len(choices)}.")
            elif chosen.problem:
                self.say(f"{chosen.provider}: {chosen.problem}.")
            elif not chosen.leaves_machine or self.confirm(f"This sends {chosen.sends}. Continue?"):
                return chosen


def existing_folder(text: str) -> Path | None:
    """Return the folder that a user has typed, as an absolute path; None if it does not exist."""
    try:
        folder = Path(text).expanduser().absolute()
        return folder if folder.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        # The name is too long, or its user is unknown.
        return None


def _plain(text: str) -> Text:
    return Text(printable(text))


def _number(text: str, most: int) -> int:
    """Return a number from 1 to `most`; 0 for any other text."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
    return number if number <= most else 0
