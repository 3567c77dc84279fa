"""The calls of the EntryService: short entries that an agent stores and recalls by meaning.

with connect() as client:
    client.entries.remember(text="the heron nests by the weir")
    for found in client.entries.recall(query="herons").entries:
        print(found.score, found.entry.text)
"""

from memoryd._calls import Asynchronous, Blocking
from memoryd._methods import EntryMethods


class EntryClient(EntryMethods, Blocking):
    """Each method takes the fields of its request as keyword arguments, or one request message.

    Every method raises `MemorydError` for a status that is not OK; where entries are off, UNIMPLEMENTED.
    """


class AsyncEntryClient(EntryMethods, Asynchronous):
    """As `EntryClient`, with methods that are awaited."""
