"""Checks of the libraries that search: SQLite with its full text, and sqlite-vec."""

from collections.abc import Callable, Sequence

from memoryd_server.observe.doctor import Check, failure, warning, well

# Without threads SQLite would have to be asked from one thread alone.
_NEEDED = ("THREADSAFE=1", "ENABLE_FTS5")


def check_keyword_engine(version: str, options: Sequence[str], probe: Callable[[], None]) -> Check:
    """Whether SQLite can build and search a keyword table; `probe` does so and raises when it cannot."""
    name, advice = "SQLite", "install apsw from its published wheels"
    missing = [option for option in _NEEDED if option not in options]
    if missing:
        means = "the index cannot be kept"
        return failure(name, f"{version}, compiled without {', '.join(missing)}", means, advice)
    try:
        probe()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        return failure(name, f"{version}: {error}", "words cannot be searched", advice)
    return well(name, f"{version} ({', '.join(_NEEDED)}), FTS5 answers")


def check_vector_engine(version: str, load_error: str | None) -> Check:
    """Return whether sqlite-vec loads and computes right distances."""
    if load_error is None:
        return well("sqlite-vec", f"{version}, computes known distances")
    return warning(
        "sqlite-vec",
        load_error,
        "memoryd compares the vectors on disk itself: the same results, but other calls wait longer",
        "install sqlite-vec for this platform, or set memorySearch.store.vector.enabled: false to be told no more",
    )
