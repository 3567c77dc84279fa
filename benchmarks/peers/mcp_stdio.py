"""A client of an MCP server that a command runs over stdio, as coding agents run it; one call at a time."""

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import end_group

PROTOCOL = "2025-06-18"
CALL_SECONDS = 120
READ_BYTES = 1 << 16


class McpError(Exception):
    """A server did not answer a call, or answered it with an error."""


class McpStdio:
    """A running MCP server. The constructor returns when the server has answered `initialize`."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], folder: Path, log: Path) -> None:
        self._log = log
        self._number = 0
        self._buffer = bytearray()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                list(map(str, command)), env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, start_new_session=True, bufsize=0,
            )  # fmt: skip
        try:
            client = {"name": "benchmark", "version": "1"}
            self._request("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
            self._send({"method": "notifications/initialized"})
        except BaseException:
            self.close()
            raise

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool: `content`, and `structuredContent` if the server sends it.

        Raises:
            McpError: if the tool reports an error, or the server ends or does not answer in two minutes.
        """
        result = self._request("tools/call", {"name": tool, "arguments": dict(arguments)})
        if result.get("isError"):
            raise McpError(f"{tool}: {json.dumps(result.get('content'))[:2_000]}")
        return result

    def close(self) -> None:
        """End the server."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        end_group(self.process)

    def _request(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        for message in self._messages(time.monotonic() + CALL_SECONDS):
            if "method" in message:
                self._refuse(message)
            elif message.get("id") == self._number:
                if "error" in message:
                    raise McpError(f"{method}: {message['error']}")
                return message["result"]
        raise McpError(f"{method}: no answer within {CALL_SECONDS} s, or the server ended: {self._tail()}")

    def _refuse(self, message: Mapping[str, Any]) -> None:
        """Answer a request of the server, so that it does not wait. Notifications are ignored."""
        if "id" not in message:
            return
        if message["method"] == "ping":
            self._send({"id": message["id"], "result": {}})
        else:
            self._send({"id": message["id"], "error": {"code": -32601, "message": "not supported"}})

    def _send(self, message: Mapping[str, Any]) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _messages(self, deadline: float) -> Iterator[dict[str, Any]]:
        """Yield the messages of the server until the deadline or its end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self._buffer.partition(b"\n")
                if newline:
                    self._buffer = rest
                    if line.strip().startswith(b"{"):
                        yield json.loads(line)
                elif not selector.select(max(0.0, deadline - time.monotonic())):
                    return
                elif data := os.read(self.process.stdout.fileno(), READ_BYTES):
                    self._buffer += data
                else:
                    return

    def _tail(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2_000:].strip()
