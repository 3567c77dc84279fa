"""The documents of an index of the tests: the files of its workspace and its history."""

import uuid

from memoryd_server.agent.threads import AgentDocuments
from memoryd_server.sources.forgotten import ForgottenFile
from memoryd_server.writing.folder_writer import FolderWriter


def documents_of(index, corpus=None):
    """Return the documents of an agent in folders; those of the corpus of the index by default."""
    writer = FolderWriter(
        "main",
        index.roots,
        index.history,
        ledger_path=str(index.path.with_name("main.appends")),
        max_file_bytes=index.max_file_bytes,
        now_ms=lambda: index.now_ns() // 1_000_000,
        new_id=lambda: uuid.uuid4().hex,
    )
    forgotten = ForgottenFile(index.path.with_name("main.forgotten"))
    return AgentDocuments(corpus or index.corpus, writer, index.history, forgotten)
