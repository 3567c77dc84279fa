"""What counts as memory: which paths are allowed, which files exist, how they are read, and when they change."""

from memoryd_server.sources.contained import FileTooLarge, open_for_append, read_file, stat_file, stat_files
from memoryd_server.sources.discover import Discovery, discover
from memoryd_server.sources.ignoring import IgnoreFileUnusable, read_rules
from memoryd_server.sources.roots import Location, Roots, resolve, resolve_for_append
from memoryd_server.sources.unseen import Unseen
from memoryd_server.sources.watch import WatchedRoot, Watcher, WatcherMode

__all__ = [
    "Discovery",
    "FileTooLarge",
    "IgnoreFileUnusable",
    "Location",
    "Roots",
    "Unseen",
    "WatchedRoot",
    "Watcher",
    "WatcherMode",
    "discover",
    "open_for_append",
    "read_file",
    "read_rules",
    "resolve",
    "resolve_for_append",
    "stat_file",
    "stat_files",
]
