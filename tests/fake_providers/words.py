"""Vectors that depend on the words of their text alone, so that texts that share words are near each other."""

import zlib

DIMENSIONS = 16


def vector(text, dimensions=DIMENSIONS):
    values = [0.01] * dimensions
    for word in text.lower().split():
        values[zlib.crc32(word.encode()) % dimensions] += 1.0
    return values
