"""The progress line, the comparison of quiet points, and the summary."""

import dataclasses
import json
import platform
import time

# Allowed growth between two equal quiet points: a share and a constant.
GROWTH = {
    # Replies of 40 MiB and LanceDB's caches leave gaps in the heap.
    "rss_mib": (0.10, 24.0),
    "descriptors": (0.0, 4),
    "threads": (0.0, 4),
    "processes": (0.0, 0),
    "state_mib": (0.10, 2.0),
}
# The caches fill up in the first rounds.
SETTLING_ROUNDS = 2


def progress(soak):
    """Return one line about a run in progress."""
    totals, daemon = soak.evidence.totals(), soak.daemon
    acknowledged = sum(len(agent.acknowledged()) for agent in soak.world.agents.values())
    return (
        f"{time.monotonic() - soak.began:5.0f} s  {soak.phase:9}  calls {sum(totals.values())} (OK {totals['OK']})  "
        f"appends {acknowledged}  checks {sum(soak.evidence.checks.values())}  kills {daemon.kills}  "
        f"stops {daemon.stops}  reloads {daemon.reloads}  RSS {daemon.rss_mib():.0f} MiB  "
        f"violations {len(soak.evidence.failures)}"
    )


def judge_growth(usages, evidence):
    """Compare the last quiet point with the first one after the caches were filled. Two rounds more are needed."""
    if len(usages) < SETTLING_ROUNDS + 2:
        return
    first, last = usages[SETTLING_ROUNDS - 1], usages[-1]
    for name, (share, constant) in GROWTH.items():
        before, after = getattr(first, name), getattr(last, name)
        evidence.check(
            "growth", after <= before * (1 + share) + constant, name, rounds=[getattr(usage, name) for usage in usages]
        )


def summary(soak, log):
    """Return everything that a run showed, as JSON values."""
    daemon, evidence = soak.daemon, soak.evidence
    return {
        "seed": soak.seed,
        "seconds": round(time.monotonic() - soak.began, 1),
        "python": platform.python_version(),
        "entries": soak.entries,
        "daemon": {
            "starts": daemon.starts,
            "kills": daemon.kills,
            "stops": daemon.stops,
            "reloads": daemon.reloads,
            "slowest_stop_seconds": round(daemon.slowest_stop, 2),
        },
        "statuses": dict(sorted(evidence.totals().items())),
        "calls": {" ".join(filter(None, key)): count for key, count in sorted(evidence.statuses.items())},
        "mean_milliseconds": {
            method: round(1_000 * seconds / evidence.statuses[method, "OK", ""])
            for method, seconds in sorted(evidence.seconds.items())
        },
        "checks": dict(sorted(evidence.checks.items())),
        "provider_faults": soak.provider.counts(),
        "rounds": [dataclasses.asdict(usage) for usage in soak.usages],
        "log": log,
        "client_processor_seconds": round(soak.processor_seconds, 1),
        "violations": evidence.failures,
    }


def write(found, json_path):
    """Print a summary as a table, and write it to a file."""
    for part in ("daemon", "statuses", "mean_milliseconds", "checks", "provider_faults", "log"):
        print(f"\n{part.replace('_', ' ')}")
        for name, value in found[part].items():
            print(f"  {value:>8}  {name}")
    print("\nfailed calls")
    for name, value in found["calls"].items():
        if not name.endswith(" OK"):
            print(f"  {value:>8}  {name}")
    print("\nrounds of one daemon: " + ", ".join(GROWTH))
    for usage in found["rounds"]:
        print("  " + "".join(f"{value:>10}" for value in usage.values()))
    print(f"\nseed {found['seed']}, {found['seconds']} s, {len(found['violations'])} violations")
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=2, default=str) + "\n", "utf-8")
