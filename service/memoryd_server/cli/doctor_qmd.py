"""The part of `memoryd doctor` that looks at qmd."""

from collections.abc import Iterator

from memoryd_server.backend.qmd.client import INSTALL
from memoryd_server.backend.qmd.commands import Verb
from memoryd_server.backend.qmd.config import QmdConfig
from memoryd_server.backend.qmd.inspection import LEAST_NODE, Inspection, inspect
from memoryd_server.observe.doctor import Check, failure, warning, well
from memoryd_server.settings import ResolvedSettings
from memoryd_server.wiring import agent_config


def check_qmd(settings: ResolvedSettings) -> Iterator[Check]:
    """Each agent whose backend is qmd: the command, the Node below it, and the models that its searches need."""
    for agent in settings.agents.values():
        config = QmdConfig.of(agent_config(agent, settings).plugins) if agent.enabled else None
        if config is not None:
            yield from checks_of(f"qmd of {agent.agent_id}", config, inspect(config))


def checks_of(name: str, config: QmdConfig, found: Inspection) -> Iterator[Check]:
    """What an inspection means, and what to do about it."""
    old = f"Node {found.node} is on the PATH, and qmd needs {LEAST_NODE} or newer"
    if found.problem:
        # Where the builtin engine stands in, the memory works without it.
        bad, means = (
            (warning, "memoryd's own index answers in its place")
            if config.fallback
            else (failure, "nothing is found, as memoryd.qmdFallback is none")
        )
        install = INSTALL if INSTALL not in found.problem else ""
        advice = f"{old}; {install}".strip("; ") if found.node_is_old else install
        yield bad(name, found.problem, means, advice or "do what the message says")
    else:
        note = f" ({old}; this qmd brings its own)" if found.node_is_old else ""
        yield well(name, f"{found.path}, version {found.version}{note}")
    yield from _model_checks(f"{name}, models", config, found)


def _model_checks(name: str, config: QmdConfig, found: Inspection) -> Iterator[Check]:
    if config.verb is Verb.SEARCH:
        yield well(name, "memory.qmd.searchMode is search, which needs none")
        return
    for path in found.bad_models:
        advice = f"mend `models` in {config.folder}/xdg-config/qmd"
        yield failure(name, f"there is no file {path}", "qmd does not answer without it", advice)
    for model in found.missing_models:
        fetch = f"XDG_CONFIG_HOME={config.folder}/xdg-config XDG_CACHE_HOME={config.folder}/xdg-cache qmd pull"
        means = "qmd fetches it when it is first used, and answers nothing until then"
        yield warning(name, f"{model} is not on disk", means, f"fetch the models beforehand: {fetch}")
    if not found.bad_models and not found.missing_models:
        yield well(name, f"those that {config.verb} needs are on disk")
