"""The page of exports offers what there is."""

from __future__ import annotations

import re

from frontend.transfer.orders import EXTENSIONS
from tests.program import REPOSITORY


def test_every_file_that_can_be_asked_for_is_on_the_page_and_no_other() -> None:
    script = (REPOSITORY / "frontend" / "static" / "console" / "exports.js").read_text()
    table = script[script.index("const FILES") : script.index("$(")]
    offered = set(re.findall(r'^    \["(\w+)"', table, re.MULTILINE))
    assert offered == set(EXTENSIONS)
