"""Checks of `memoryd doctor`."""

from memoryd_server.doctor.checks import (
    Check,
    CheckResult,
    check_certificates,
    check_keyword_engine,
    check_tokens,
    check_vector_engine,
    failure,
    warning,
    well,
)
from memoryd_server.doctor.host import (
    check_clock,
    check_descriptors,
    check_inotify,
    check_set_aside,
    check_state_dir,
    check_workspace,
)
from memoryd_server.doctor.network import check_http, check_metrics, check_socket

__all__ = [
    "Check",
    "CheckResult",
    "check_certificates",
    "check_clock",
    "check_descriptors",
    "check_http",
    "check_inotify",
    "check_keyword_engine",
    "check_metrics",
    "check_set_aside",
    "check_socket",
    "check_state_dir",
    "check_tokens",
    "check_vector_engine",
    "check_workspace",
    "failure",
    "warning",
    "well",
]
