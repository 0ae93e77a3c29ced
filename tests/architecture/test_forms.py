"""No form sends what is typed in the address, also where it is sent before the page's script has loaded."""

import re
from pathlib import Path

import pytest

from tests.program import REPOSITORY

TEMPLATES = sorted((REPOSITORY / "templates").rglob("*.html"))
FORM = re.compile(r"<form\b[^>]*>", re.DOTALL)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_form_is_sent_in_the_body(template: Path) -> None:
    forms = FORM.findall(template.read_text())
    assert [form for form in forms if 'method="post"' not in form] == []


def test_there_are_forms() -> None:
    assert sum(len(FORM.findall(template.read_text())) for template in TEMPLATES) > 10
