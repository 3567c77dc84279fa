"""The part of `memoryd doctor` that looks at qmd."""

from collections.abc import Iterator

from memoryd_server.backend.qmd.client import INSTALL
from memoryd_server.backend.qmd.commands import Verb
from memoryd_server.backend.qmd.config import QmdConfig
from memoryd_server.backend.qmd.inspection import LEAST_NODE, Inspection, inspect
from memoryd_server.observe.doctor import Check, Verdict
from memoryd_server.settings import ResolvedSettings
from memoryd_server.wiring import agent_config


def check_qmd(settings: ResolvedSettings) -> Iterator[Check]:
    """Each agent whose backend is qmd: the command, the Node below it, and the models that its searches need."""
    for agent in settings.agents.values():
        config = agent_config(agent, settings).qmd if agent.enabled else None
        if config is not None:
            yield from checks_of(f"qmd of {agent.agent_id}", config, inspect(config))


def checks_of(name: str, config: QmdConfig, found: Inspection) -> Iterator[Check]:
    """What an inspection means, and what to do about it."""
    # Where the builtin engine stands in, the memory works without it.
    bad = Verdict.WARNING if config.fallback else Verdict.FAILED
    old = f"Node {found.node} is on the PATH, and qmd needs {LEAST_NODE} or newer"
    if found.problem:
        advice = INSTALL if INSTALL not in found.problem else ""
        yield Check(name, bad, found.problem, f"{old}; {advice}".strip("; ") if found.node_is_old else advice)
    else:
        note = f" ({old}; this qmd brings its own)" if found.node_is_old else ""
        yield Check(name, Verdict.OK, f"{found.path}, version {found.version}{note}")
    yield from _model_checks(f"{name}, models", config, found)


def _model_checks(name: str, config: QmdConfig, found: Inspection) -> Iterator[Check]:
    if config.verb is Verb.SEARCH:
        yield Check(name, Verdict.OK, "memory.qmd.searchMode is search, which needs none")
        return
    for path in found.bad_models:
        yield Check(
            name, Verdict.FAILED, f"there is no file {path}", f"mend `models` in {config.folder}/xdg-config/qmd"
        )
    for model in found.missing_models:
        fetch = f"XDG_CONFIG_HOME={config.folder}/xdg-config XDG_CACHE_HOME={config.folder}/xdg-cache qmd pull"
        reason = f"{model} is not on disk: qmd fetches it when it is first used, and answers nothing until then"
        yield Check(name, Verdict.WARNING, reason, f"fetch the models beforehand: {fetch}")
    if not found.bad_models and not found.missing_models:
        yield Check(name, Verdict.OK, f"those that {config.verb} needs are on disk")
