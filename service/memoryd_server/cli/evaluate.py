"""`memoryd eval`: measure search quality with an agent's settings on a golden set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import CommonOptions, agent_option, json_option, settings_options

if TYPE_CHECKING:
    from pydantic import SecretStr

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)
_SHARE = click.FloatRange(0, 1)


@click.command("eval")
@settings_options
@agent_option
@json_option
@click.option(
    "--data", type=_FOLDER, required=True, help="Folder with queries.jsonl, or with subfolders that contain it."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Maximum number of queries to run from each dataset; they are spread evenly over the dataset.",
)
@click.option(
    "--by",
    help="Comma-separated labels to group the results by, for example dataset,dataset/lang,kind. Each label gets its "
    "own table. Default: all labels.",
)
@click.option("--keyword", is_flag=True, help="Search by keywords only; nothing is embedded.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which to keep the indexes for the next run.",
)
@click.option(
    "--database",
    metavar="URL",
    help="Keep the memory files and the indexes in this PostgreSQL database, for evaluations only. Each workspace is "
    "imported as an agent of its own, and stays there. The password may be in memoryd.store.passwordFile.",
)
@click.option("--out", type=_FILE, help="Also write the JSON to this file.")
@click.option(
    "--compare", type=_FILE, help="Results file of an earlier run. Print the differences, with confidence intervals."
)
@click.option("--min-recall", type=_SHARE, help="Exit with 1 if the recall over all queries is below this value.")
@click.option(
    "--max-loss",
    type=_SHARE,
    help="With --compare: exit with 1 if a compared metric, such as recall, decreases by more than this value in any "
    "group of the first label of --by, or if queries of the earlier run are left out.",
)
def evaluate(
    config: Path | None,
    state_dir: Path | None,
    workspace: Path | None,
    token_file: Path | None,
    agent: str,
    as_json: bool,
    data: Path,
    limit: int | None,
    by: str | None,
    keyword: bool,
    keep: Path | None,
    database: str | None,
    out: Path | None,
    compare: Path | None,
    min_recall: float | None,
    max_loss: float | None,
) -> None:
    """Measure search quality on questions with known answers.

    Each workspace of the golden set is indexed, separately from the agent's own index, and searched over gRPC with the
    agent's settings.

    docs/search-quality.md explains the results.
    """
    # Help needs neither the metrics nor the daemon.
    from memoryd_server.cli.evaluation_report import EvaluationOptions, evaluate_memory  # noqa: PLC0415

    common = CommonOptions(config, state_dir, workspace, None, token_file)
    url = None if database is None else _database_url(database)
    options = EvaluationOptions(data, limit, by, keyword, keep, out, compare, min_recall, max_loss, url)
    sys.exit(evaluate_memory(common, agent, options, as_json=as_json))


def _database_url(text: str) -> SecretStr:
    from pydantic import SecretStr  # noqa: PLC0415 -- not needed for help

    if not text.startswith(("postgresql://", "postgres://")):
        raise click.UsageError("--database: the value is not a URL such as postgresql://USER@HOST/DATABASE")
    return SecretStr(text)
