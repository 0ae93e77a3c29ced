"""The export page offers every file that can be exported."""

import re

from frontend.transfer.subprocesses import EXTENSIONS
from tests.program import REPOSITORY


def test_the_page_offers_exactly_the_files_that_can_be_exported() -> None:
    script = (REPOSITORY / "frontend" / "static" / "console" / "exports.js").read_text()
    table = script[script.index("const FILES") : script.index("$(")]
    assert set(re.findall(r'^    \["(\w+)"', table, re.MULTILINE)) == set(EXTENSIONS)
