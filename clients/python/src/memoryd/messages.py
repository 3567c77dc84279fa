"""Every message and enum of the contract under one name, so that callers need not know which file holds which."""

from memoryd.v1.error_reason_pb2 import *  # noqa: F403 -- a module of names
from memoryd.v1.memory_pb2 import *  # noqa: F403
from memoryd.v1.memory_service_pb2 import *  # noqa: F403
from memoryd.v1.sync_event_pb2 import *  # noqa: F403
