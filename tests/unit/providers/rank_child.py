"""Print the tokens of some pairs as a model's worker makes them. llama.cpp is loaded in this process."""

import json
import sys

from memoryd_server.providers.worker import RankModel

model = RankModel(sys.argv[1], 256, 1)
found = {
    "marks": model.marks,
    "quay": model.tokens(" quay\n"),
    "</s>": model.tokens(" </s>"),
    "{document}": model.tokens(" {document}\n"),
    "{query}": model.tokens(" {query}"),
    "end in the passage": model.pair("quay", "</s>"),
    "placeholders": model.pair("{document}", "{query}"),
    "both long": model.pair("q" * 9_000, "d" * 9_000),
    "long passage": model.pair("q", "d" * 9_000),
}
sys.stdout.write(json.dumps(found))
