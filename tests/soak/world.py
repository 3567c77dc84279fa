"""The state that the clients, the editors and the checks of the soak test share."""

import asyncio
import random
from dataclasses import dataclass, field

import grpc

from memoryd.client import AsyncMemorydClient, MemorydError, connect_async
from memoryd.failure import typed_errors
from memoryd.messages import CITATION_MODE_OFF
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceStub
from soak.evidence import TRANSIENT, Evidence
from soak.model import AgentModel, EntryModel, token_of
from soak.settings import AGENTS

# The settings leave this agent out for a while.
GUEST = AGENTS[-1]
GUEST_REASONS = ("AGENT_NOT_FOUND",)
PATIENCE_SECONDS = 90.0
RETRY_SECONDS = 0.05


@dataclass
class World:
    """The model, the evidence and the connections. `stop` is set when the clients must come to an end."""

    seed: int
    address: str
    agents: dict
    entries: dict
    evidence: Evidence = field(default_factory=Evidence)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = 0
    words: str = "heron weir reed kestrel ferry lock mill osprey sluice barge willow otter pike towpath heath"

    def __post_init__(self):
        self.chance = random.Random(self.seed)

    def token(self):
        """Return the next unique word."""
        self.number += 1
        return token_of(self.number)

    def sentence(self, length=8):
        """Return words of chance."""
        return " ".join(self.chance.choices(self.words.split(), k=length))

    def connect(self):
        """Return a client with the client library's retries."""
        return connect_async(self.address)

    async def pause(self, low, high):
        """Wait, but not longer than until the clients must stop."""
        try:
            await asyncio.wait_for(self.stop.wait(), self.chance.uniform(low, high))
        except TimeoutError:
            return

    def any_agent(self):
        """Return an agent's model, more often that of the first."""
        return self.agents[self.chance.choices(AGENTS, (5, 3, 1))[0]]

    async def call(self, name, call, allowed=(), **fields):
        """Return the answer of a call, or None if it failed. Judges its status."""
        began = asyncio.get_running_loop().time()
        if fields.get("agent_id") == GUEST:
            allowed = (*allowed, *GUEST_REASONS)
        try:
            answer = await call(**fields)
        except MemorydError as error:
            self.evidence.failed(name, error, began, allowed)
            return None
        self.evidence.ok(name, began)
        return answer

    async def call_until_done(self, name, call, settled=(), **fields):
        """Repeat a call that is safe to repeat until it succeeds; return None for a status in `settled`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        while True:
            began = loop.time()
            try:
                answer = await call(**fields)
            except MemorydError as error:
                guest = GUEST_REASONS if fields.get("agent_id") == GUEST else ()
                self.evidence.failed(name, error, began, (*settled, *guest))
                if error.reason in settled:
                    return None
                may_repeat = (
                    error.code.name in {*TRANSIENT, "ABORTED", "CANCELLED", "RESOURCE_EXHAUSTED"}
                    or error.reason in guest
                )
                if not may_repeat or loop.time() > until:
                    self.evidence.fail("a call was never acknowledged", method=name, error=str(error), fields=fields)
                    return None
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.evidence.ok(name, began)
                return answer

    async def search(self, client, agent, **fields):
        """Search, and check the revision and every snippet of the answer."""
        seen = agent.revision
        answer = await self.call(
            "MemorySearch", client.search, agent_id=agent.agent_id, citations=CITATION_MODE_OFF, **fields
        )
        if answer is None:
            return None
        self.see_revision(agent, answer.info.index_revision, seen)
        for hit in answer.results:
            self.check_hit(agent, hit, fields)
        return answer

    def see_revision(self, agent, revision, seen):
        """Check that a revision is not below one that was seen before its call."""
        self.evidence.check("revision", revision >= seen, "it decreased", agent=agent.agent_id, seen=seen, now=revision)
        agent.revision = max(agent.revision, revision)

    def check_hit(self, agent, hit, fields):
        """Check that a snippet is the text of a version of its file."""
        wrong = wrong_text(agent, hit.path, hit.snippet)
        self.evidence.check(
            "snippet",
            not wrong,
            wrong,
            agent=agent.agent_id,
            path=hit.path,
            snippet=hit.snippet,
            query=fields.get("query"),
        )


def wrong_text(agent, path, text):
    """Return what is wrong with a text that is said to be in a file; "" if nothing is."""
    if path in agent.notes:
        return "" if agent.is_version(path, text) else "no version of the note contains it"
    if path in agent.lines:
        strange = [line for line in text.split("\n") if not agent.is_known_line(path, line)]
        return f"lines that nothing wrote: {strange}" if strange else ""
    words = {word.strip(".:") for word in text.split() if word.startswith("zq")}
    if path.startswith("sessions/"):
        session = agent.sessions.get(path.removeprefix("sessions/").split(".")[0])
        return "" if session and are_parts(words, session.tokens) else "no message of the session contains it"
    if path.startswith("memory/20"):
        said = {token for session in agent.sessions.values() for token in (session.session_id, *session.tokens)}
        return "" if are_parts(words, said) else "no archived message contains it"
    return "" if path in agent.forgotten.values() else "the file is unknown"


def are_parts(words, tokens):
    """Return whether each word is one of the tokens, or a part of one, as a snippet may end in a word."""
    return all(any(word in token for token in tokens) for word in words)


class SingleAttempts:
    """Calls without any retry, of the library or of gRPC."""

    def __init__(self, address):
        options = (
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 250),
            ("grpc.initial_reconnect_backoff_ms", 100),
        )
        self.channel = grpc.aio.insecure_channel(address, options=options)
        self.stub = MemoryServiceStub(self.channel)
        self.client = AsyncMemorydClient(self.channel)

    def method(self, name, request, seconds):
        """Return a function that sends a request of these fields once."""

        async def send(**fields):
            with typed_errors():
                return await getattr(self.stub, name)(request(**fields), timeout=seconds)

        return send


def new_world(seed, address, settings, state):
    """Return a world without any memory."""
    agents = {
        agent: AgentModel(agent, settings.workspace(agent), state / "agents" / agent / "sessions") for agent in AGENTS
    }
    return World(seed, address, agents, {agent: EntryModel() for agent in AGENTS})
