"""Find, read and watch the memory files and session transcripts of an agent."""

from memoryd_server.sources.archive_reader import ReadStopped
from memoryd_server.sources.compression import DamagedArchive
from memoryd_server.sources.corpus import Corpus, is_session_path, transcript_location, transcript_name
from memoryd_server.sources.discover import (
    Discovery,
    UnreadableFolder,
    discover_files,
)
from memoryd_server.sources.exclusions import (
    MOST_EXCLUDED,
    OTHER_TRANSCRIPT,
    SECOND_NAME,
    ExcludedPlace,
    RootFinder,
    pattern_rule,
)
from memoryd_server.sources.files import (
    FileTooLarge,
    file_stat,
    is_named_by,
    open_directory,
    open_file,
    open_for_append,
    read_file,
    stat_file,
)
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.forgotten import ForgottenEntries, ForgottenFile, ForgottenSources, ForgottenStorage
from memoryd_server.sources.generated_sessions import read_generated_sessions
from memoryd_server.sources.growth import GrowthLimits, GrowthRule
from memoryd_server.sources.ignore import (
    IGNORE_FILE,
    MOST_IGNORE_BYTES,
    NO_RULES,
    IgnoreFileUnusable,
    IgnoreRule,
    IgnoreRules,
    parse_rules,
    read_rules,
)
from memoryd_server.sources.provenance import day_of, is_curated, match_day, note_day, origin_of_file
from memoryd_server.sources.roots import (
    CURATED_NAMES,
    DREAM_NAMES,
    LONG_TERM_NAMES,
    MEMORY_FOLDER,
    REPAIR_FOLDER,
    SUFFIX,
    USER_FILE,
    ExtraPath,
    Location,
    Roots,
    is_too_deep,
    resolve_dreams,
    resolve_for_append,
    resolve_path,
)
from memoryd_server.sources.session_database import change_signature
from memoryd_server.sources.session_list import DATABASE_DEVICE, session_id_problem
from memoryd_server.sources.session_messages import messages_of_session
from memoryd_server.sources.session_source import (
    Transcript,
)
from memoryd_server.sources.transcript_text import FLATTENING_VERSION, USER, Message
from memoryd_server.sources.transcripts import (
    SESSIONS_FOLDER,
    START,
    ReadPosition,
    TranscriptFile,
    TranscriptReader,
    is_rotated,
    list_transcripts,
    read_transcript,
    session_id,
)
from memoryd_server.sources.watch_scope import (
    MOUNT_TABLE,
    NativeReader,
    WatchedRoot,
    WatcherMode,
    file_system_of,
    is_remote,
)
from memoryd_server.sources.watcher import SharedInotify, Watcher, open_inotify

__all__ = [
    "CURATED_NAMES",
    "DATABASE_DEVICE",
    "DREAM_NAMES",
    "FLATTENING_VERSION",
    "IGNORE_FILE",
    "LONG_TERM_NAMES",
    "MEMORY_FOLDER",
    "MOST_EXCLUDED",
    "MOST_IGNORE_BYTES",
    "MOUNT_TABLE",
    "NO_RULES",
    "OTHER_TRANSCRIPT",
    "REPAIR_FOLDER",
    "SECOND_NAME",
    "SESSIONS_FOLDER",
    "START",
    "SUFFIX",
    "USER",
    "USER_FILE",
    "Corpus",
    "DamagedArchive",
    "Discovery",
    "ExcludedPlace",
    "ExtraPath",
    "FileTooLarge",
    "FolderCorpus",
    "ForgottenEntries",
    "ForgottenFile",
    "ForgottenSources",
    "ForgottenStorage",
    "GrowthLimits",
    "GrowthRule",
    "IgnoreFileUnusable",
    "IgnoreRule",
    "IgnoreRules",
    "Location",
    "Message",
    "NativeReader",
    "ReadPosition",
    "ReadStopped",
    "RootFinder",
    "Roots",
    "SharedInotify",
    "Transcript",
    "TranscriptFile",
    "TranscriptReader",
    "UnreadableFolder",
    "WatchedRoot",
    "Watcher",
    "WatcherMode",
    "change_signature",
    "day_of",
    "discover_files",
    "file_stat",
    "file_system_of",
    "is_curated",
    "is_named_by",
    "is_remote",
    "is_rotated",
    "is_session_path",
    "is_too_deep",
    "list_transcripts",
    "match_day",
    "messages_of_session",
    "note_day",
    "open_directory",
    "open_file",
    "open_for_append",
    "open_inotify",
    "origin_of_file",
    "parse_rules",
    "pattern_rule",
    "read_file",
    "read_generated_sessions",
    "read_rules",
    "read_transcript",
    "resolve_dreams",
    "resolve_for_append",
    "resolve_path",
    "session_id",
    "session_id_problem",
    "stat_file",
    "transcript_location",
    "transcript_name",
]
