"""A synthetic workspace: the same files for the same seed, with the word frequencies of prose (Zipf).

Words consist of syllables, and function words are as frequent as in English, so that keyword search finds rare words,
common words and stop words in natural proportions.
"""

import itertools
import random
from pathlib import Path

FUNCTION_WORDS = (
    "the of and to a in is it you that he was for on are with as I his they be at one have this from or had by not "
    "but what all were when we there can an your which their if do will each how them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over"
).split()
_ONSETS = "b d f g k l m n p r s t v w st tr pl gr ch sh".split()
_VOWELS = "a e i o u ai ea ou".split()
_CODAS = ("", "n", "r", "s", "t", "l", "nd", "rk")


def vocabulary(size: int, random_: random.Random) -> list[str]:
    """Return `size` distinct content words."""
    words: dict[str, None] = {}
    while len(words) < size:
        syllables = random_.choice((1, 2, 2, 3))
        words[
            "".join(
                random_.choice(_ONSETS) + random_.choice(_VOWELS) + random_.choice(_CODAS) for _ in range(syllables)
            )
        ] = None
    return list(words)


class Prose:
    """Text of a vocabulary, with Zipf frequencies."""

    def __init__(self, seed: int, size: int = 30_000) -> None:
        self._random = random.Random(seed)
        self.words = vocabulary(size, self._random)
        self._cumulative = list(itertools.accumulate(1 / (rank + 10) for rank in range(size)))

    def word(self) -> str:
        """Return a content word; common words are more frequent."""
        return self._random.choices(self.words, cum_weights=self._cumulative)[0]

    def sentence(self) -> str:
        """Return a dozen words, of which almost half are function words."""
        content = self._random.choices(self.words, cum_weights=self._cumulative, k=7)
        mixed = [word for pair in zip(content, self._random.choices(FUNCTION_WORDS, k=7), strict=True) for word in pair]
        return " ".join(mixed[: self._random.randint(8, 14)]).capitalize() + "."

    def note(self, size: int) -> str:
        """Return a Markdown note of about `size` bytes."""
        lines = [f"# {self.word().capitalize()} {self.word()}", ""]
        while sum(map(len, lines)) + len(lines) < size:
            lines.append(self._random.choice(("", "- ", "", "## " + self.word() + "\n\n")) + self.sentence())
        return "\n".join(lines)[:size] + "\n"

    def question(self) -> str:
        """Return a question of a few content words and function words."""
        content = [self.word() for _ in range(self._random.randint(3, 6))]
        return f"what did the {' and the '.join(content[:2])} do when {' '.join(content[2:])} was made?"


def write(workspace: Path, files: int, size: int, seed: int = 1) -> Prose:
    """Write `files` notes of `size` bytes under `memory/`, a hundred per folder."""
    prose = Prose(seed)
    for number in range(files):
        folder = workspace / "memory" / f"{number // 100:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"note-{number:05}.md").write_text(prose.note(size), "utf-8")
    return prose
