"""Pages of lists. A page begins after the item that its token names, so that a changing list loses nobody's place."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd_server.access import DEFAULT_AGENT, Grant
from memoryd_server.backend import AgentConfig, AgentDirectory, ListedFile
from memoryd_server.rpc import conversion, enums
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.opaque import make_page_token, read_page_token
from memoryd_server.rpc.validation import Page

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)

# A page ends before it is larger, so that it fits a message also where paths and errors are as long as they can be.
MOST_PAGE_BYTES = 1024 * 1024


def agents_page(agents: AgentDirectory, grant: Grant, page: Page) -> memory_service_pb2.ListAgentsResponse:
    """A page of the configured agents that a caller may use."""
    usable = [config for config in agents.configs().values() if grant.allows(config.agent_id)]
    shown, token = _cut(
        "agents", usable, page, lambda config: config.agent_id, lambda config: _agent(agents, grant, config)
    )
    return memory_service_pb2.ListAgentsResponse(agents=shown, next_page_token=token)


def _agent(agents: AgentDirectory, grant: Grant, config: AgentConfig) -> memory_service_pb2.Agent:
    memory = agents.opened().get(config.agent_id)
    unavailable = memory_pb2.INDEX_STATE_UNAVAILABLE if config.enabled else memory_pb2.INDEX_STATE_UNSPECIFIED
    return build_message(
        memory_service_pb2.Agent,
        agent_id=config.agent_id,
        workspace=config.roots.workspace,
        default=config.agent_id == DEFAULT_AGENT if grant.limited else config.default,
        enabled=config.enabled,
        index_state=unavailable if memory is None else enums.index_state(memory.board.current.state),
    )


def files_page(files: Sequence[ListedFile], page: Page) -> memory_service_pb2.ListFilesResponse:
    """A page of an agent's files."""
    shown, token = _cut("files", files, page, lambda file: file.path, conversion.file)
    return memory_service_pb2.ListFilesResponse(files=shown, next_page_token=token)


def _cut(
    kind: str, items: Sequence[_T], page: Page, key: Callable[[_T], str], message: Callable[[_T], _M]
) -> tuple[list[_M], str]:
    after = read_page_token(kind, page.token)
    rest = [item for item in items if key(item) > after] if after else items
    shown: list[_M] = []
    room = MOST_PAGE_BYTES
    for item in rest[: page.size]:
        made = message(item)
        room -= made.ByteSize()
        if shown and room < 0:
            break
        shown.append(made)
    return shown, make_page_token(kind, key(rest[len(shown) - 1])) if len(rest) > len(shown) else ""
