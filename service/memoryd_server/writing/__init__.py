"""What touches a user's files: appending, and nothing but appending."""

from memoryd_server.writing.append import Appended, Appender

__all__ = ["Appended", "Appender"]
