"""Drives a client's runner: a process that reads requests and writes answers, one JSON object a line."""

import json
import queue
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

from daemon_process import environment

REPOSITORY = Path(__file__).parents[2]

# Longer than any deadline of the table; whoever needs more hangs.
ANSWER_SECONDS = 60
END_SECONDS = 30


class Runner:
    """A runner that has been started. `environment` is all it knows of its surroundings; its log goes to `log`."""

    def __init__(self, command, environment, log):
        self.log = Path(log)
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
        self._numbers = 0
        self._answers = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def ask(self, op, **fields):
        """The answer to one request, without its id."""
        self._numbers += 1
        request = {"id": self._numbers, "op": op, **fields}
        self.process.stdin.write(json.dumps(request, ensure_ascii=False) + "\n")
        self.process.stdin.flush()
        try:
            line = self._answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no answer within {ANSWER_SECONDS} s to {request}; {self._said()}") from None
        assert line is not None, f"the runner ended at {request}; {self._said()}"
        answer = json.loads(line)
        assert answer.pop("id", None) == self._numbers, f"the answer to {request} has another id: {line}"
        return answer

    def connect(self, **given):
        """Opens the client; fails where it refuses."""
        answer = self.ask("connect", **given)
        assert answer == {"ok": {}}, answer

    def call(self, method, request=None, **fields):
        """The answer of a call that ends well, as proto3 JSON."""
        answer = self.ask("call", method=method, request=request or {}, **fields)
        assert "ok" in answer, answer
        return answer["ok"]

    def close(self):
        """Ends the runner by ending its input, as the protocol says; one that stays is killed, and that is an error."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the runner did not end with its input; {self._said()}") from None
        self._reader.join(END_SECONDS)
        self.process.stdout.close()
        assert self.process.returncode == 0, f"the runner ended with {self.process.returncode}; {self._said()}"

    def kill(self):
        """Ends a runner of which nothing good is to be expected."""
        self.process.kill()
        self.process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def _said(self):
        return f"it said: {self.log.read_text('utf-8', 'replace')[-3000:]}"


@contextmanager
def running(command, folders):
    """Yields what gives a runner, or one of its own for those who have an environment; one that failed is replaced."""
    kept = []

    @contextmanager
    def runner(given=None):
        if given is not None or not kept:
            folder = folders.mktemp("r")
            made = Runner(command, environment(folder) | (given or {}), folder / "log")
            (kept if given is None else []).append(made)
        else:
            made = kept[0]
        try:
            yield made
        except BaseException:
            made.kill()
            kept[:] = [each for each in kept if each is not made]
            raise
        if given is not None:
            made.close()

    yield runner
    for each in kept:
        each.close()
