"""`memoryd init`: find the notes of a user, write the settings, and show the first search."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from memoryd_server.cli.options import json_option

PROVIDERS = ("none", "local", "ollama", "openai", "gemini", "voyage", "mistral", "deepinfra")
"""The embedding providers that can be chosen. Others are set in the settings file."""

_FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of `memoryd init`; None for an option that was not given."""

    folder: Path | None
    state_dir: Path | None
    config: Path | None
    all_files: bool | None
    embedding: str | None
    model: str | None
    query: str | None
    force: bool
    interactive: bool
    as_json: bool

    @property
    def changes_settings(self) -> bool:
        """Whether an option says what to write to the settings file."""
        given = (self.folder, self.all_files, self.embedding, self.model)
        return any(value is not None for value in given)


@click.command(short_help="Set up a memory from a folder of notes.")
@click.option("--state-dir", type=_FOLDER, help="State directory: settings, indexes and tokens. Default: ~/.openclaw.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file to write. Default: memoryd.json5 in the state directory.",
)
@click.option("--workspace", type=_FOLDER, help="The same as FOLDER.")
@click.option(
    "--all-files/--memory-only",
    default=None,
    help="Index all Markdown files of FOLDER, or only MEMORY.md, USER.md and those in memory/. Default: all files, "
    "unless FOLDER is the workspace of an agent.",
)
@click.option(
    "--embedding",
    type=click.Choice(PROVIDERS),
    help="Embedding provider for search by meaning. Providers other than none, local and ollama send the notes, the "
    "queries and indexed session transcripts to a server.",
)
@click.option(
    "--model", help="Embedding model. For local: path of a GGUF file, or hf:organization/repository/file.gguf."
)
@click.option("--query", help="Query of the first search.")
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help="Ask no questions. Without --embedding, use the provider of OpenClaw's settings, or keywords only.",
)
@click.option("--force", is_flag=True, help="Change an existing settings file; a copy is kept.")
@json_option
@click.argument("folder", required=False, type=_FOLDER)
def init(
    state_dir: Path | None,
    config: Path | None,
    workspace: Path | None,
    all_files: bool | None,
    embedding: str | None,
    model: str | None,
    query: str | None,
    yes: bool,
    force: bool,
    as_json: bool,
    folder: Path | None,
) -> None:
    """Set up a memory: find the notes, write the settings, index, and search once.

    FOLDER is a folder with Markdown files. Without it, the memory is that of OpenClaw if its settings are found;
    otherwise an empty memory is created.

    At a terminal, asks where the notes are and whether to search by meaning. Nothing is sent to an embedding provider
    that was not chosen. The chosen provider is called once before anything is written.
    """
    if folder is not None and workspace is not None and folder != workspace:
        raise click.UsageError("FOLDER and --workspace name two folders; give one of them")
    if model is not None and embedding in {None, "none"}:
        raise click.UsageError("--model requires --embedding with a provider")
    streams = (sys.stdin, sys.stdout)
    # A stream that was closed by the caller is None.
    interactive = not (yes or as_json) and all(stream is not None and stream.isatty() for stream in streams)
    options = InitOptions(
        folder or workspace, state_dir, config, all_files, embedding, model, query, force, interactive, as_json
    )
    # Help needs neither gRPC nor the settings.
    from memoryd_server.cli.init_dialog import run_init  # noqa: PLC0415

    sys.exit(run_init(options))
