"""docs/recall.md says what the code says."""

import runpy
import warnings
from pathlib import Path

from memoryd_server.sessions.document import document

PAGE = Path(__file__).parents[3] / "docs" / "recall.md"


def test_the_page_is_fresh():
    assert PAGE.read_text("utf-8") == document(), "run `make docs`"


def test_the_module_prints_it(capsys):
    with warnings.catch_warnings():
        # The module is imported above, and run once more here.
        warnings.simplefilter("ignore", RuntimeWarning)
        runpy.run_module("memoryd_server.sessions.document", run_name="__main__")
    assert capsys.readouterr().out == document()
