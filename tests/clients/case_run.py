"""Plays one case of the table with one client."""

import json
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from clients.contract import full, full_error
from clients.daemon_fixture import ClientsDaemon
from clients.matching import Mismatch, match
from clients.runner import Runner

MOST_EVENTS = 10_000
# What a call may take unless its case is about deadlines: the documented ones are too short for a busy machine.
PATIENT_MS = 30_000
_NAMED = re.compile(r"\$\{(\w+)\}")


@dataclass
class CaseRun:
    """One case under way. `saved` holds what the case can name as `$name`, or as `${name}` within a text."""

    daemon: ClientsDaemon
    runner: Runner
    over: str
    saved: dict
    methods: dict = field(default_factory=dict)

    def run(self, steps):
        for number, step in enumerate(steps, 1):
            kind = next(iter(step))
            for _ in range(step.get("repeat", 1)):
                began = time.monotonic()
                try:
                    getattr(self, f"_{kind}")(step)
                except Mismatch as error:
                    raise AssertionError(f"step {number}, {kind}: {error}") from error
                took = time.monotonic() - began
                least, most = step.get("at_least_seconds", 0), step.get("within_seconds", 100)
                assert least <= took < most, f"step {number}, {kind}: took {took:.1f} s"

    def filled(self, value):
        """`value` with its names replaced by what they stand for."""
        if isinstance(value, dict):
            return {key: self.filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.filled(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if value[:1] == "$" and value[1:] in self.saved:
            return self.saved[value[1:]]
        return _NAMED.sub(lambda found: str(self.saved[found[1]]), value)

    def _connect(self, step):
        given = self.daemon.connection(self.over) if step.get("beside", True) else {}
        given |= self.filled(step["connect"])
        answer = self.runner.ask("connect", **{name: value for name, value in given.items() if value is not None})
        if "refused" in step:
            match(self.filled(step["refused"]), answer.get("refused"), self.saved, f"{answer}: refused")
        else:
            match({"ok": {}}, answer)

    def _close(self, step):
        match({"ok": {}}, self.runner.ask("close"))

    def _call(self, step):
        timeout = step.get("timeout_ms", PATIENT_MS)
        more = {} if timeout is None else {"timeout_ms": timeout}
        answer = self.runner.ask("call", method=step["call"], request=self.filled(step.get("request", {})), **more)
        self._check(step, step["call"], answer)

    def _memory_tool(self, step):
        answer = self.runner.ask("memory_tool", request=self.filled(step["memory_tool"]))
        if "error" in step:
            match(self.filled({"error": step["error"]}), answer, self.saved)
        else:
            match({"ok": {"text": self.filled(step["expect"])}}, answer, self.saved)

    def _open(self, step):
        more = {"timeout_ms": step["timeout_ms"]} if "timeout_ms" in step else {}
        request, stream = self.filled(step.get("request", {})), step.get("as", step["open"])
        self.methods[stream] = step["open"]
        match({"ok": {}}, self.runner.ask("open", stream=stream, method=step["open"], request=request, **more))

    def _next(self, step):
        """The next event, or with `skip` the first one that is as expected."""
        stream = step["next"]
        for _ in range(MOST_EVENTS if step.get("skip") else 1):
            answer = self.runner.ask("next", stream=stream)
            try:
                self._check(step, self.methods[stream], answer)
            except Mismatch:
                if not step.get("skip") or "ok" not in answer:
                    raise
            else:
                return
        raise Mismatch(f"none of {MOST_EVENTS} events was as expected")

    def _cancel(self, step):
        match({"ok": {}}, self.runner.ask("cancel", stream=step["cancel"]))

    def _check(self, step, method, answer):
        if "error" in step:
            expected = self.filled(step["error"])
            match({"error": {"$present": True}}, answer)
            match(expected, full_error(answer["error"]), self.saved, "error")
        elif "bad" in step:
            match(self.filled(step["bad"]), answer.get("bad"), self.saved, f"{answer}: bad")
        elif "end" in step:
            match({"end": step["end"]}, answer)
        else:
            if "ok" not in answer:
                raise Mismatch(f"expected an answer, found {answer}")
            match(self.filled(step.get("expect", {})), full(method, answer["ok"]), self.saved)

    def _write(self, step):
        for path, text in step["write"].items():
            ClientsDaemon.write(self.daemon.workspace, path, self.filled(text))

    def _read(self, step):
        text = Path(self.daemon.workspace, self.filled(step["read"])).read_bytes().decode()
        match(self.filled(step["expect"]), text, self.saved, step["read"])

    def _keys(self, step):
        """The idempotency keys under which a file was appended to, as the daemon noted them."""
        ledger = (self.daemon.state / "memory" / "main.appends").read_text("utf-8")
        entries = [json.loads(line) for line in ledger.splitlines()]
        keys = sorted({entry["key"] for entry in entries if entry["path"].endswith(self.filled(step["keys"]))})
        match(step["expect"], keys, self.saved, "keys")

    def _daemon(self, step):
        {
            "stop": self.daemon.stop,
            "kill": lambda: self.daemon.stop(signal.SIGKILL),
            "start": self.daemon.start,
        }[step["daemon"]]()
