"""What `memoryd init` finds: an OpenClaw home, and the Markdown files of a folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.settings import AgentSettings, ResolvedSettings, find_locations, process_environment

_SUFFIX = ".md"
_CURATED = frozenset({"MEMORY.md", "memory.md", "USER.md"})
_MEMORY_FOLDER = "memory"
# Enough for the notes of a person. Larger folders are counted in part.
_MAX_LISTED = 200_000
# About the number of characters of a token in English text.
_CHARS_PER_TOKEN = 4
_LIKELY_FOLDERS = ("notes", "Notes", "Documents/notes", "Documents/Notes", "Documents/Obsidian Vault", "obsidian")


@dataclass(frozen=True, slots=True)
class FolderSurvey:
    """The Markdown files of a folder, without those in hidden folders.

    `memory_files` are MEMORY.md, USER.md and the files below `memory/`, which every workspace indexes. `other_files`
    are all others; both have their size in bytes. If not `complete`, the folder has more files than were counted.
    """

    folder: Path
    memory_files: int
    other_files: int
    memory_bytes: int
    other_bytes: int
    complete: bool

    @property
    def has_memory(self) -> bool:
        """Whether the folder is laid out as the workspace of an agent."""
        return self.memory_files > 0

    def tokens(self, *, all_files: bool) -> int:
        """Return about how many tokens the files have, 4 bytes each."""
        return (self.memory_bytes + (self.other_bytes if all_files else 0)) // _CHARS_PER_TOKEN

    def text(self) -> str:
        """Return the counts in words."""
        count = self.memory_files + self.other_files
        more = "" if self.complete else "more than "
        if not count:
            return "no Markdown files"
        return f"{more}{count:,} Markdown file{'' if count == 1 else 's'}"


def survey_folder(folder: Path) -> FolderSurvey:
    """Count the Markdown files of a folder. Links are not followed. Blocks."""
    counts, sizes, listed = [0, 0], [0, 0], 0
    for parent, folders, names in os.walk(folder):
        listed += len(folders) + len(names)
        if listed > _MAX_LISTED:
            break
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(parent, name)
            if name.endswith(_SUFFIX) and not name.startswith(".") and (size := _size(path)) is not None:
                is_other = not _is_memory(path.relative_to(folder).parts)
                counts[is_other] += 1
                sizes[is_other] += size
    return FolderSurvey(folder, counts[0], counts[1], sizes[0], sizes[1], listed <= _MAX_LISTED)


def _is_memory(parts: tuple[str, ...]) -> bool:
    return (parts[0] == _MEMORY_FOLDER and len(parts) > 1) or (len(parts) == 1 and parts[0] in _CURATED)


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        # Removed since it was listed.
        return None


def likely_folders(home: Path) -> list[Path]:
    """Return the folders of a home in which people often keep notes and which contain a Markdown file at their top."""
    folders = [home / name for name in _LIKELY_FOLDERS]
    found: dict[tuple[int, int], Path] = {}
    for folder in folders:
        try:
            identity = folder.stat()
            if any(path.suffix == _SUFFIX for path in folder.iterdir()):
                # On a file system that ignores case, two names are one folder.
                found.setdefault((identity.st_dev, identity.st_ino), folder)
        except OSError:
            continue
    return list(found.values())


@dataclass(frozen=True, slots=True)
class SettingsPlaces:
    """The settings files of a state directory. `openclaw` is None if it has no file of OpenClaw."""

    state_dir: Path
    own: Path
    openclaw: Path | None


def find_settings(config: Path | None, state_dir: Path | None) -> SettingsPlaces:
    """Return where the settings files of these options are."""
    given = {"config": config, "state_dir": state_dir}
    flags = {name: str(path) for name, path in given.items() if path is not None}
    places = find_locations(environ=process_environment(), home=Path.home(), flags=flags)
    openclaw = places.openclaw_file if places.openclaw_file.is_file() else None
    # A link to a file in another folder, such as a collection of settings, stays a link.
    own = places.own_file.resolve() if places.own_file.is_symlink() else places.own_file
    return SettingsPlaces(places.state_dir, own, openclaw)


def default_agent(settings: ResolvedSettings) -> AgentSettings:
    """Return the default agent, or else the first one."""
    return settings.agents[settings.default_agent or next(iter(settings.agents))]


def named_provider(settings: ResolvedSettings) -> str:
    """Return the embedding provider that a settings file selects for the default agent; empty if none does."""
    agent = default_agent(settings)
    written = settings.written.get(f"agents.list[{agent.agent_id}].memorySearch.provider")
    is_set = written is not None and written.origin != "default"
    return agent.memory_search.provider if is_set else ""


def extra_paths(settings: ResolvedSettings) -> list[tuple[str, str]]:
    """Return the extra paths of the default agent with their patterns, empty for none."""
    found = default_agent(settings).memory_search.extra_paths
    return [(extra, "") if isinstance(extra, str) else (extra.path, extra.pattern or "") for extra in found]
