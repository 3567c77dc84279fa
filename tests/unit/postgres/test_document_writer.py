"""The writer of documents fulfils the contract of memory writers."""

import pytest

from unit.writing.writer_contract import WriterContract

pytestmark = pytest.mark.postgres


class TestDocumentWriter(WriterContract):
    """In the tables of an agent of its own."""

    @pytest.fixture
    def memory(self, new_memory):
        return new_memory()
