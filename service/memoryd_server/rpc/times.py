"""Times as the wire's well-known types."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(unix_ns: int) -> Timestamp:
    """Unix nanoseconds as a Timestamp; what no Timestamp can hold becomes the nearest that can."""
    earliest, latest = -62_135_596_800, 253_402_300_799
    seconds, nanos = divmod(unix_ns, 1_000_000_000)
    return Timestamp(seconds=max(earliest, min(latest, seconds)), nanos=nanos)


def duration(seconds: float) -> Duration:
    """Seconds as a Duration."""
    message = Duration()
    message.FromNanoseconds(int(seconds * 1e9))
    return message
