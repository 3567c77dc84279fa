"""Which entries concern a prompt: the least cosine of an entry in a recall block.

A block is put before a prompt without a request of the user, so it must be empty for most prompts. The least cosine is
on the scale of the embedding model: that of the search's table of models or, for a model that is not in it, a scale
derived from the prompt's cosines with a sample of texts. The sample is the vectors of the entries. While there are only
a few entries, which may all be near the prompt, fixed texts on other subjects complete it.
"""

from collections.abc import Sequence

import numpy as np

from memoryd_server.search import LEAST_COSINE, UNCALIBRATED, CosineScale, derived_scale, known_scale
from memoryd_server.vectors import Vector

STRICTNESS = 1.5
"""The least cosine, as a share of the way from an unrelated text to an answer; measured in docs/entries.md."""

WORDS_SCORE = 0.3
"""The least score if entries are compared by words."""

SAMPLED = 128
"""At most this many vectors of entries are in a sample."""

LEAST_SAMPLED = 32
"""With fewer vectors of entries, `REFERENCE_TEXTS` complete the sample."""

REFERENCE_TEXTS = (
    "The meeting was moved to Thursday.",
    "Bread needs flour, water, salt and yeast.",
    "The river floods the valley every spring.",
    "She plays the violin in a small orchestra.",
    "The invoice was paid in March.",
    "Water boils at 100 degrees.",
    "He repaired the old bicycle in the garage.",
    "The museum is closed on Mondays.",
    "Stars form in clouds of gas.",
    "The password must have twelve characters.",
    "Two teams played in the final.",
    "My uncle keeps bees.",
    "The function returns a list of numbers.",
    "A new bridge was built over the bay.",
    "The doctor advised more sleep.",
    "Prices rose by four percent.",
)
"""Texts on many subjects; most prompts are unrelated to almost all of them."""


def known_least_cosine(model: str) -> float | None:
    """Return the least cosine for a model in the search's table of models; None for another model."""
    scale = known_scale(model)
    return None if scale is None else _least(scale)


def derived_least_cosine(prompt: Vector, sample: Sequence[Vector]) -> float:
    """Return the least cosine for a prompt and a model that is not in the table; all vectors are unit vectors.

    A single vector shows nothing about other texts.
    """
    if len(sample) <= 1:
        return _least(UNCALIBRATED)
    centre = np.asarray(np.stack(sample).mean(axis=0, dtype=np.float64), np.float32)
    return _least(derived_scale(prompt, centre))


def _least(scale: CosineScale) -> float:
    return max(LEAST_COSINE, scale.at(STRICTNESS))
