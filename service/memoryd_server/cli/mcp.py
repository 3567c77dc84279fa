"""`memoryd mcp`: the Model Context Protocol over standard input and output, served by the daemon.

The command copies messages between the client and the daemon. It imports neither the `mcp` package nor the daemon's
packages, so that each session starts fast and takes little memory.
"""

from __future__ import annotations

import sys

import click

from memoryd_server.cli.options import CommonOptions, agent_option, common_options, complain, reported


@click.command()
@common_options
@agent_option
@click.option("--no-start", is_flag=True, help="Do not start a daemon if none is running.")
def mcp(common: CommonOptions, agent: str, no_start: bool) -> None:
    """Serve the memory to an MCP client, such as a coding agent, over standard input and output.

    MCP clients run this command. It passes messages to the running daemon. If no daemon is running, it starts one,
    unless --address or --no-start is given. That daemon writes its log to memoryd.log in the state directory, and exits
    after it has been idle for `memoryd.mcp.idleSeconds`.

    The command exits when standard input ends.
    """
    # Help needs neither gRPC nor an event loop.
    import asyncio  # noqa: PLC0415

    with reported():
        asyncio.run(_run(common, agent, may_start=not no_start))
    sys.exit(0)


async def _run(common: CommonOptions, agent_id: str, *, may_start: bool) -> None:
    """Serve until standard input ends, its client is gone, or SIGTERM or SIGINT arrives."""
    import asyncio  # noqa: PLC0415
    import signal  # noqa: PLC0415

    from memoryd_server.cli.mcp_bridge import LAST_RESPONSES_SECONDS, Bridge  # noqa: PLC0415
    from memoryd_server.cli.mcp_connector import DaemonConnector  # noqa: PLC0415
    from memoryd_server.cli.stdio_lines import StandardInput, StandardOutput  # noqa: PLC0415

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    lines, output = StandardInput(), StandardOutput()
    connector = DaemonConnector(common, agent_id, may_start=may_start)

    async def respond(line: bytes) -> None:
        try:
            await output.send(line)
        except OSError:
            # The client has closed its end of standard output.
            stop.set()
            raise

    bridge = Bridge(lines.line, respond, connector.connect, complain)
    lines.start()

    async def wait_for_end() -> None:
        await lines.closed()
        await asyncio.sleep(LAST_RESPONSES_SECONDS)

    tasks = [asyncio.create_task(work) for work in (bridge.run(), wait_for_end(), stop.wait())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    error = tasks[0].exception() if tasks[0] in done else None
    if error is not None and not isinstance(error, OSError):
        raise error
