"""Every case of the table, with every client, over a Unix socket and over TCP."""

import pytest

from certificates import needs_openssl
from clients.languages import every_language
from clients.table import cases, missing, play

pytestmark = needs_openssl

CASES = [pytest.param(case, over, id=f"{over}-{case['name']}") for case, over in cases()]


@pytest.mark.parametrize("runners", every_language(), indirect=True)
@pytest.mark.parametrize(("case", "over"), CASES)
def test_a_client_does_what_the_table_says(runners, case, over, grounds, tmp_path):
    if missing(case):
        pytest.skip(missing(case))
    play(case, over, runners, grounds, tmp_path)
