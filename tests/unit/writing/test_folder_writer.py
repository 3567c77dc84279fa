"""The writer of a workspace fulfils the contract of memory writers."""

import pytest

from unit.writing.writer_contract import WriterContract
from unit.writing.written_memory import FolderMemory


class TestFolderWriter(WriterContract):
    """In a folder of its own."""

    @pytest.fixture
    def memory(self, tmp_path):
        memory = FolderMemory(tmp_path)
        yield memory
        memory.close()
