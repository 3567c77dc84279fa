"""The options that select files and sources: what they put into a request."""

import json

import click
import pytest
from click.testing import CliRunner

from memoryd.messages import MemorySearchRequest
from memoryd_server.cli.filters import ALL_SOURCES, FILE_SOURCES, filter_options, source_option


def command(sources):
    @click.command()
    @source_option(sources, "Sources.")
    @filter_options
    def echo(sources, file_filter):
        # The fields must be those of the contract.
        request = MemorySearchRequest(sources=sources, filter=file_filter)
        click.echo(json.dumps({"filter": file_filter, "set": request.HasField("filter"), "sources": sources}))

    return echo


def run(*arguments, sources=ALL_SOURCES):
    return CliRunner().invoke(command(sources), arguments)


def parsed(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_no_option_is_no_filter():
    assert parsed() == {"filter": None, "set": False, "sources": []}


def test_every_option_is_a_condition_of_the_filter():
    options = {
        "--since": "2026-05",
        "--until": "2026",
        "--path": "projects/",
        "--tag": "billing",
        "--project": "falcon",
        "--type": "decision",
        "--where": "owner.name=Ilse=x",
        "--source": "sessions",
    }
    assert parsed(*(word for pair in options.items() for word in pair)) == {
        "filter": {
            "since": "2026-05",
            "until": "2026",
            "path_prefixes": ["projects/"],
            "front_matter": [
                {"key": "tags", "values": ["billing"]},
                {"key": "project", "values": ["falcon"]},
                {"key": "type", "values": ["decision"]},
                {"key": "owner.name", "values": ["Ilse=x"]},
            ],
        },
        "set": True,
        "sources": ["SOURCE_SESSIONS"],
    }


def test_repeated_values_of_a_key_are_alternatives():
    found = parsed("--tag", "a", "--where", "status=open", "--tag", "b", "--where", "tags=c", "--where", "status=new")
    assert found["filter"]["front_matter"] == [
        {"key": "tags", "values": ["a", "b", "c"]},
        {"key": "status", "values": ["open", "new"]},
    ]
    found = parsed("--path", "a/", "--path", "b/", "--source", "memory", "--source", "entries")
    assert (found["filter"], found["sources"]) == (
        {"path_prefixes": ["a/", "b/"]},
        ["SOURCE_MEMORY", "SOURCE_ENTRIES"],
    )


@pytest.mark.parametrize("date", ["2026", "2026-05", "2024-02-29", "0001", "9999-12-31"])
def test_a_day_a_month_and_a_year_are_dates(date):
    assert parsed("--since", date, "--until", date)["filter"] == {"since": date, "until": date}


@pytest.mark.parametrize(
    "date", ["", "soon", "2026-13", "2026-02-29", "2026-5", "20260501", "2026-W01-1", "0000", "2026-05-01T10", "২০২৬"]
)
@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_wrong_date_is_a_usage_error_that_names_the_option(option, date):
    done = run(option, date)
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': {date!r} is not a date; write YYYY-MM-DD, YYYY-MM or YYYY" in done.output


@pytest.mark.parametrize("text", ["status", "=open", " =open", "status=", ""])
def test_a_condition_without_key_or_value_is_a_usage_error(text):
    done = run("--where", text)
    assert done.exit_code == 2
    assert f"{text!r} is not KEY=VALUE; write for example status=open" in done.output


def test_a_list_of_files_has_no_entries():
    done = run("--source", "entries", sources=FILE_SOURCES)
    assert done.exit_code == 2
    assert "'entries' is not one of 'memory', 'sessions'" in done.output
