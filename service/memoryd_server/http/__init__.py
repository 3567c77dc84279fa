"""The HTTP edge and the MCP server. Imported only when one of them is used, because it imports large packages."""

from memoryd_server.http.connection import HttpLimits
from memoryd_server.http.inspector_assets import read_page
from memoryd_server.http.mcp_calls import SessionOwner
from memoryd_server.http.mcp_http import McpLimits
from memoryd_server.http.mcp_server import McpServer
from memoryd_server.http.request_headers import AllowedSources
from memoryd_server.http.server import EdgeParts, HttpServer

__all__ = [
    "AllowedSources",
    "EdgeParts",
    "HttpLimits",
    "HttpServer",
    "McpLimits",
    "McpServer",
    "SessionOwner",
    "read_page",
]
