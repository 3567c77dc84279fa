"""The part of `memoryd doctor` that looks at entries."""

from collections.abc import Iterator

from memoryd.client import MemorydClient
from memoryd.client import MemorydError as ClientError
from memoryd_server.observe.doctor import Check, failure, well
from memoryd_server.settings import ResolvedSettings


def check_entries(settings: ResolvedSettings, client: MemorydClient) -> Iterator[Check]:
    """Each agent that keeps entries: whether they can be read, and how many there are."""
    for agent in settings.agents.values():
        if agent.enabled and agent.entries_enabled:
            yield _check(f"entries of {agent.agent_id}", agent.agent_id, client)


def _check(name: str, agent_id: str, client: MemorydClient) -> Check:
    try:
        page = client.entries.list(agent_id=agent_id, page_size=1)
    except ClientError as error:
        means = "nothing is remembered or recalled; searches of the Markdown go on"
        return failure(name, error.message, means, "docs/entries.md says what entries need")
    return well(name, f"{page.total} entries")
