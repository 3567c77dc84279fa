"""Settings for tests of the qmd backend, and the backend that a reply names."""

from memoryd.v1 import memory_pb2
from waiting import eventually

DIRECT = "agent:main:cli:direct:test"
QMD, BUILTIN = memory_pb2.BACKEND_QMD, memory_pb2.BACKEND_BUILTIN
# Nothing of qmd happens by itself unless a test wants it.
STILL = {"onBoot": False, "interval": "0s", "debounceMs": 0, "embedInterval": "0s"}


def qmd_settings(command, *, fallback="builtin", update=None, memory_search=None, citations="off", **qmd):
    """Settings under which `command` answers. Other keywords are keys of memory.qmd."""
    settings = {
        "memory": {
            "backend": "qmd",
            "citations": citations,
            "qmd": {"command": str(command), "update": {**STILL, **(update or {})}, **qmd},
        },
        "memoryd": {"qmdFallback": fallback},
    }
    if memory_search:
        settings["agents"] = {"defaults": {"memorySearch": memory_search}}
    return settings


async def ask(running, query, **request):
    return await running.search(query, **{"session_key": DIRECT, **request})


async def ready(running):
    """Brings everything up to date."""
    return await running.synced()


async def answered_by(running, backend, query="crane", *, seconds=20.0, **request):
    """Asks until this backend answers, and returns its answer."""

    async def look():
        answer = await ask(running, query, **request)
        return answer if answer.info.backend == backend else None

    return await eventually(look, seconds=seconds)


def fallback_reason(answer):
    """Why another backend answered; empty when none did."""
    kind = memory_pb2.DEGRADATION_KIND_BACKEND_FALLBACK
    found = [d for d in answer.info.degradations if d.kind == kind]
    return found[0].reason if found else ""


def found(answer):
    return [(hit.path, hit.start_line, hit.end_line) for hit in answer.results]
