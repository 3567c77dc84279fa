"""Every case of the table, with every client, over a Unix socket and over TCP."""

import pytest

from certificates import needs_openssl
from clients.languages import LANGUAGES
from clients.table import cases, missing, run_case

pytestmark = [needs_openssl, pytest.mark.clients]


def plays():
    """Each case with each language; those of the memory tool only with the clients that execute its calls."""
    for language in LANGUAGES:
        for case, over in cases():
            if case.get("memory_tool") and not language.memory_tool:
                continue
            yield pytest.param(language, case, over, id=f"{over}-{case['name']}-{language.name}", marks=language.marks)


@pytest.mark.parametrize(("runners", "case", "over"), list(plays()), indirect=["runners"])
def test_a_client_does_what_the_table_says(runners, case, over, daemons, tmp_path):
    if missing(case):
        pytest.skip(missing(case))
    run_case(case, over, runners, daemons, tmp_path)
