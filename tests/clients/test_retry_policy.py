"""The retry policy of all clients: it ends before the deadlines do, so that a call says why it failed."""

import json
from itertools import accumulate, repeat
from pathlib import Path

import pytest

from memoryd._calls import Unary
from memoryd._methods import EntryMethods, MemoryMethods

CLIENTS = Path(__file__).parents[2] / "clients"
CONFIG = json.loads((CLIENTS / "service_config.json").read_text("utf-8"))["methodConfig"]
# What every supported gRPC adds to a pause or takes from it, by chance: a fifth.
JITTER = 0.2
# A call that is answered by nobody ends with that, and not with its deadline, from this deadline on.
SHORTEST_NAMED_SECONDS = 2
# What a busy machine may need besides the pauses.
SPARE = 0.25


def seconds(text):
    return float(text.removesuffix("s"))


def policy(service, method=None):
    """What gRPC applies: the entry of the method, or else of its service; None if the entry has no policy."""
    for name in ({"service": service, "method": method}, {"service": service}):
        for entry in CONFIG:
            if name in entry["name"]:
                return entry.get("retryPolicy")
    raise AssertionError(f"{service} has no policy")


def pauses(policy):
    """The pauses between the attempts in seconds, without the chance in them; none without a policy."""
    if policy is None:
        return []
    most = seconds(policy["maxBackoff"])
    factors = repeat(policy["backoffMultiplier"], policy["maxAttempts"] - 2)
    grown = accumulate(factors, lambda pause, factor: pause * factor, initial=seconds(policy["initialBackoff"]))
    return [min(pause, most) for pause in grown]


def unary():
    for service, methods in (("MemoryService", MemoryMethods), ("EntryService", EntryMethods)):
        for method in vars(methods).values():
            if isinstance(method, Unary):
                yield pytest.param(f"memoryd.v1.{service}", method, id=f"{service}-{method.rpc}")


@pytest.mark.parametrize(("service", "method"), list(unary()))
def test_the_attempts_of_a_call_are_used_up_well_before_its_documented_deadline(service, method):
    longest = sum(pauses(policy(service, method.rpc))) * (1 + JITTER)
    assert round(longest, 6) <= method.seconds(method.request()) * (1 - SPARE)


@pytest.mark.parametrize("service", ["memoryd.v1.MemoryService", "memoryd.v1.EntryService"])
def test_so_they_are_before_a_short_deadline_that_the_caller_names(service):
    longest = sum(pauses(policy(service))) * (1 + JITTER)
    assert round(longest, 6) <= SHORTEST_NAMED_SECONDS * (1 - SPARE)


def test_every_method_that_is_named_is_one_of_the_contract():
    known = {(param.values[0], param.values[1].rpc) for param in unary()}
    named = {(name["service"], name["method"]) for entry in CONFIG for name in entry["name"] if "method" in name}
    assert named
    assert named <= known


def test_the_page_says_how_long_the_attempts_take():
    page = (CLIENTS / "README.md").read_text("utf-8")
    for policy in (entry["retryPolicy"] for entry in CONFIG if "retryPolicy" in entry):
        between = pauses(policy)
        least, most = (sum(between) * (1 + sign * JITTER) for sign in (-1, 1))
        listed = ", ".join(f"{pause:g}" for pause in between)
        assert f"| {policy['maxAttempts']} | {listed} s | {least:.2f} to {most:.2f} s |" in page


@pytest.mark.parametrize("copy", ["python/src/memoryd", "go/memoryd", "rust"])
def test_the_copies_are_what_they_are_copies_of(copy):
    assert (CLIENTS / copy / "service_config.json").read_bytes() == (CLIENTS / "service_config.json").read_bytes()


def test_the_typescript_retry_policy_is_generated_from_it():
    generated = (CLIENTS / "typescript" / "src" / "gen" / "service_config.ts").read_text("utf-8")
    assert json.loads(generated.partition("serviceConfig = ")[2].rstrip().removesuffix(";"))["methodConfig"] == CONFIG
