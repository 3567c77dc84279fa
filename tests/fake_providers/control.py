"""Faults by hand: a server that runs is told over HTTP what to do next.

curl -d '{"fault": "limited", "seconds": 3, "times": 2}' http://127.0.0.1:8801/_control
curl -d '{"most_items": 10}' http://127.0.0.1:8801/_control
curl -d '{"fates": ["expired", "failed"], "looks": 5}' http://127.0.0.1:8801/_control
curl http://127.0.0.1:8801/_control

The fates are those of the next batch jobs, which are over once they were looked at so often.
"""

import copy

from fake_providers.faults import KINDS

PATH = "/_control"


def is_control(path):
    return path == PATH


def answer(server, request):
    """Does what the request says; how many requests came, how many texts, and which of them more than once."""
    if isinstance(request.body, dict):
        wanted = dict(request.body)
        times, kind = wanted.pop("times", 1), wanted.pop("fault", None)
        if "most_items" in wanted:
            server.most_items = wanted.pop("most_items")
        if "fates" in wanted:
            server.fates.extend(wanted.pop("fates"))
        if "looks" in wanted:
            server.looks = wanted.pop("looks")
        if kind in KINDS:
            fault = getattr(server, kind)(**wanted)
            server.faults.extend(copy.copy(fault) for _ in range(times))
        elif kind is not None:
            return {"error": f"no such fault; there are: {', '.join(KINDS)}"}
    return {
        "requests": len(server.requests),
        "texts": sum(server.asked.values()),
        "asked_again": sorted(text for text, times in server.asked.items() if times > 1),
        "faults_to_come": len(server.faults),
    }
