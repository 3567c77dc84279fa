"""Clients of the EntryService: short texts that an agent stores and recalls by meaning.

with connect() as client:
    client.entries.remember(text="the heron nests by the weir")
    for scored in client.entries.recall(query="herons").entries:
        print(scored.score, scored.entry.text)
"""

from memoryd._calls import Asynchronous, Blocking
from memoryd._methods import EntryMethods


class EntryClient(EntryMethods, Blocking):
    """The methods for entries. Each accepts the fields of its request as keyword arguments, or one request message.

    Every method raises `MemorydError` for a status other than OK. If entries are disabled, the code is UNIMPLEMENTED.
    """


class AsyncEntryClient(EntryMethods, Asynchronous):
    """The asyncio form of `EntryClient`: methods are awaited."""
