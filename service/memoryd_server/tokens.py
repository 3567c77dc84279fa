"""Bearer tokens as they stand in a file."""

from pathlib import Path

from memoryd_server.errors import SettingsError


def read_tokens(file: Path | None) -> tuple[str, ...]:
    """The tokens of a token file, one a line; blank lines and lines that begin with `#` are passed over.

    Raises:
        SettingsError: the file cannot be read or holds no token.
    """
    if file is None:
        return ()
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"cannot read the token file {file}: {error}") from error
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise SettingsError(f"the token file {file} holds no token: write one on a line of its own")
    return tokens
