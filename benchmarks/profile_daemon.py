"""`memoryd` with timers around the functions of `profile_stages.py`: `python benchmarks/profile_daemon.py serve ...`.

Another process controls the timers over the Unix socket at the path in the environment variable PROFILE_SOCKET. The
answer to "end" contains the timed calls since "begin", or since the start of the process.
"""

import os
import threading
import time
from multiprocessing.connection import Connection, Listener
from typing import Any

from profile_timer import Timer, time_stages

from memoryd_server import settings

# `memoryd serve` calls this before it imports gRPC. Earlier versions, which can be profiled too, do not have it.
getattr(settings, "use_one_grpc_thread", lambda: None)()

import grpc  # noqa: E402

import memoryd_server.app  # noqa: E402, F401 -- imports the functions that the stages time
from memoryd_server.cli import run  # noqa: E402

# Methods whose messages are converted within a stage.
TIMED_METHODS = {"MemorySearch", "MemoryAppend"}


def time_messages(timer: Timer) -> None:
    """Time the conversion of requests and answers from and to bytes, which gRPC calls."""
    unary = grpc.unary_unary_rpc_method_handler

    def handler(behavior: Any, request_deserializer: Any = None, response_serializer: Any = None) -> Any:
        if getattr(behavior, "__name__", "") in TIMED_METHODS and request_deserializer and response_serializer:
            request_deserializer = timer.timed("request", request_deserializer)
            response_serializer = timer.timed("answer", response_serializer)
        return unary(behavior, request_deserializer, response_serializer)

    grpc.unary_unary_rpc_method_handler = handler


class Control(threading.Thread):
    """A thread that answers the commands of the process that measures."""

    def __init__(self, timer: Timer, path: str) -> None:
        super().__init__(daemon=True)
        self._timer = timer
        self._listener = Listener(path, "AF_UNIX")
        self._cpu_ns = 0

    def run(self) -> None:
        with self._listener.accept() as connection:
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        while True:
            try:
                command = connection.recv()
            except EOFError:
                return
            calls = self._timer.take()
            report = {
                "cpu_ns": time.process_time_ns() - self._cpu_ns,
                "timer_ns": self._timer.call_ns,
                "calls": [] if command == "begin" else [tuple(vars(call).values()) for call in calls],
            }
            if command == "begin":
                self._cpu_ns = time.process_time_ns()
            connection.send(report)


if __name__ == "__main__":
    timer = Timer()
    time_stages(timer)
    time_messages(timer)
    Control(timer, os.environ["PROFILE_SOCKET"]).start()
    run()
