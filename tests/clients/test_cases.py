"""Every case of the table, with every client, over a Unix socket and over TCP."""

import pytest

from certificates import needs_openssl
from clients.languages import LANGUAGES, OWN
from clients.table import cases, missing, run_case

pytestmark = needs_openssl


def plays():
    """Each case with each language. Both tiers have Python's without TLS, which is quick; `make clients` has all."""
    for language in LANGUAGES:
        for case, over in cases():
            quick = language.name == OWN and over != "tls"
            marks = [*language.marks, *([] if quick else [pytest.mark.clients])]
            yield pytest.param(language, case, over, id=f"{over}-{case['name']}-{language.name}", marks=marks)


@pytest.mark.parametrize(("runners", "case", "over"), list(plays()), indirect=["runners"])
def test_a_client_does_what_the_table_says(runners, case, over, daemons, tmp_path):
    if missing(case):
        pytest.skip(missing(case))
    run_case(case, over, runners, daemons, tmp_path)
