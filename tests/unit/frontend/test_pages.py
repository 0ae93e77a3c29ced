"""A template uses the fields of its page and no other names, and each field is used."""

from dataclasses import fields
from typing import get_args

import pytest
from jinja2 import Environment, FileSystemLoader, meta

from frontend.pages import (
    ErrorPage,
    ExperimentsPage,
    LoginPage,
    PageContext,
    ParticipantPage,
    ScriptedPage,
    Tab,
    TabPage,
)
from tests.program import REPOSITORY

ENVIRONMENT = Environment(loader=FileSystemLoader(REPOSITORY / "templates"), autoescape=True)
ENVIRONMENT.filters["cleaned"] = str
TEMPLATES: dict[str, type[PageContext]] = {
    ParticipantPage.template: ParticipantPage,
    ErrorPage.template: ErrorPage,
    LoginPage.template: LoginPage,
    ExperimentsPage.template: ExperimentsPage,
    **{f"console/{name}.html": ScriptedPage for name in ("launch", "account")},
    **{f"console/{tab}.html": TabPage for tab in get_args(Tab)},
}
#: Fields that only say which template it is.
NAMING = {ScriptedPage: {"name"}}


def names_in(template: str) -> set[str]:
    """The names that a template and those that it extends or includes take from their context."""
    source, _, _ = ENVIRONMENT.loader.get_source(ENVIRONMENT, template)  # type: ignore[union-attr]
    tree = ENVIRONMENT.parse(source)
    others = [name for name in meta.find_referenced_templates(tree) if name]
    # Every page knows `mount`, the path that its addresses begin with.
    return (set(meta.find_undeclared_variables(tree)) - {"mount"}).union(*(names_in(name) for name in others))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_uses_exactly_the_fields_of_its_page(template: str) -> None:
    page = TEMPLATES[template]
    assert names_in(template) == {field.name for field in fields(page)} - NAMING.get(page, set())


def test_every_kind_of_page_is_held_against_its_template() -> None:
    assert set(TEMPLATES.values()) == set(get_args(PageContext))
