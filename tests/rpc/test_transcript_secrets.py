"""Secrets that were said in a session are nowhere but in its transcript, whatever is done with it."""

import pytest

from fake_providers.embedding_server import EmbeddingServer
from memoryd.v1 import memory_service_pb2 as pb
from rpc.test_sessions import AFTER_COMPACTION, say
from rpc.wire import TIMEOUT
from secret_texts import INNOCENT, SECRETS
from transcripts import assistant, user
