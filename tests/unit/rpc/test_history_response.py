"""A page of the history fits a reply, and its token continues after the last write that it contains."""

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent import FileVersion, HistoryPage
from memoryd_server.rpc.edit_messages import history_request, history_response
from memoryd_server.rpc.wire import MOST_PAGE_BYTES
from memoryd_server.store import WriteKind, WriteRecord


def page(count, *, path="memory/a.md", has_more=False):
    records = (
        WriteRecord(version_id=f"v{number}", path=path, kind=WriteKind.CREATE, time_ms=1, caller="a", sequence=number)
        for number in range(count, 0, -1)
    )
    return HistoryPage(tuple(map(FileVersion, records)), has_more=has_more)


def next_sequence(response):
    return history_request(pb.MemoryHistoryRequest(page_token=response.next_page_token)).older_than


def test_the_last_page_has_no_token():
    assert history_response(page(3)).next_page_token == ""
    assert history_response(page(0)).next_page_token == ""


def test_a_token_continues_after_the_last_write_of_the_page():
    response = history_response(page(3, has_more=True))
    assert (len(response.versions), next_sequence(response)) == (3, 1)


def test_a_page_that_would_not_fit_a_reply_is_cut():
    response = history_response(page(1_000, path=f"memory/{'x' * 4_000}.md"))
    assert 1 <= len(response.versions) < 1_000
    assert response.ByteSize() <= MOST_PAGE_BYTES + 8_000
    assert next_sequence(response) == 1_000 - len(response.versions) + 1
