"""The version of the chunker: when it differs from an index's, every file is chunked again."""

from typing import Final

CHUNKER_VERSION: Final = 1
"""Rises with every change that gives other chunks for the same text and numbers."""
