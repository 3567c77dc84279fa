"""What touches a user's files: appending, and archives of sessions that write over nothing."""

from memoryd_server.writing.append import Appended, Appender, AppendJob

__all__ = ["AppendJob", "Appended", "Appender"]
