"""Measure automatic recall with a real model: `python benchmarks/entry_recall.py --model all-MiniLM-L6-v2.gguf`.

Stores the entries of `entry_prompts.json` in a daemon and requests a recall block for each prompt. "Silent" is the
share of unrelated prompts with an empty block; "found" is the share of related prompts whose block contains their
entry. The part "choose" was used to choose the strictness, the part "measure" was not. With fewer entries, each group
of entries is an agent, which gets all unrelated prompts. The model is measured under its own name ("table") and under
a name that is not in the table of models ("unknown"). "words" has no provider, and "before" is the earlier rule, a
score of at least .3.

Needs the extras `memoryd[local,lancedb]`. Prints JSON and writes it to benchmarks/results/entry_recall.json.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon import DaemonProcess

from memoryd.client import MemorydClient

FOLDER = Path(__file__).parent
SET = json.loads((FOLDER / "entry_prompts.json").read_text("utf-8"))
ENTRIES: list[str] = SET["entries"]
RESULTS = FOLDER / "results" / "entry_recall.json"
BEFORE = {"limit": 3, "min_score": 0.3}
# The number of entries per agent, and the number of agents of that size.
SIZES = {len(ENTRIES): 1, 20: 2, 5: 8, 1: 8}
SECONDS = 60


def groups() -> dict[str, list[int]]:
    """Return the entries of each agent, by numbers; entries on one subject are not next to each other in the set."""
    found = {}
    for size, count in SIZES.items():
        step = len(ENTRIES) // count
        for number in range(count):
            found[f"of-{size}-{number}"] = [(number * step + n) % len(ENTRIES) for n in range(size)]
    return found


def settings(model: Path | None) -> str:
    search = {"provider": "none"} if model is None else {"provider": "local", "local": {"modelPath": str(model)}}
    agents = [{"id": name, "workspace": f"/nonexistent/{name}"} for name in groups()]
    plugins = {"slots": {"memory": "memory-lancedb"}}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}, "list": agents}, "plugins": plugins})


def block(client: MemorydClient, agent: str, prompt: str, *, before: bool) -> set[str]:
    if before:
        answer = client.entries.recall(agent_id=agent, query=prompt, timeout=SECONDS, **BEFORE)
    else:
        answer = client.entries.recall_block(agent_id=agent, prompt=prompt, timeout=SECONDS)
    return {each.entry.text for each in answer.entries}


def measured(client: MemorydClient, *, before: bool = False) -> dict[str, dict[str, Any]]:
    """Return the shares by part of the set and number of entries."""
    counts: dict[str, dict[str, list[bool]]] = {}
    for agent, numbers in groups().items():
        for row in SET["prompts"]:
            if row["entry"] is not None and row["entry"] not in numbers:
                continue
            found = block(client, agent, row["prompt"], before=before)
            key = f"{row['part']}, {len(numbers)} entries"
            each = counts.setdefault(key, {"silent": [], "found": [], "entries of a related prompt": []})
            if row["entry"] is None:
                each["silent"].append(not found)
            else:
                each["found"].append(ENTRIES[row["entry"]] in found)
                each["entries of a related prompt"].append(len(found))
    return {
        key: {name: round(sum(values) / len(values), 3) for name, values in each.items() if values}
        | {"unrelated": len(each["silent"]), "related": len(each["found"])}
        for key, each in counts.items()
    }


def run(folder: Path, model: Path | None, *, before: bool = False) -> Mapping[str, Any]:
    state = folder / "state"
    state.mkdir(parents=True)
    (state / "memoryd.json5").write_text(settings(model), "utf-8")
    daemon = DaemonProcess(folder / "workspace", state)
    client = daemon.start()
    try:
        for agent, numbers in groups().items():
            for number in numbers:
                answer = client.entries.remember(agent_id=agent, text=ENTRIES[number], timeout=SECONDS)
                if answer.degradations and model is not None:
                    raise RuntimeError(answer.degradations)
        return {"before": measured(client, before=True), "block": measured(client)} if before else measured(client)
    finally:
        client.close()
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="all-MiniLM-L6-v2 as a GGUF file")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for name in ("all-MiniLM-L6-v2", "unknown"):
            model = folder / f"{name}.gguf"
            model.symlink_to(options.model.resolve())
            results |= {name: run(folder / name, model, before=name != "unknown")}
        results["words"] = run(folder / "words", None)
    results |= results.pop("all-MiniLM-L6-v2")
    results = {"before": results["before"], "table": results["block"], **{k: results[k] for k in ("unknown", "words")}}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
