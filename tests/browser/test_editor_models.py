"""What of the editor needs no page: places in YAML, what the schema says there, and changes of single values."""

import pytest
from playwright.sync_api import Page

from tests.program import Program

pytestmark = pytest.mark.browser

PLACES = """async () => {
  const { completionsAt, meaningAt, pathAt } = await import("/static/console/spec_schema.js");
  const lines = `html:
  title: a
questions:
  - name: age
    type:\\x20
    text: x
  -\\x20
samplers:
  Adaptive:
    noi
# a comment
comprehension:
  questions:
    - text: a
      answer: b
practice:
- queries: 1
  feedback: true
`.split("\\n");
  const schema = {
    properties: {
      questions: { items: { properties: { type: { enum: ["text", "choice"], default: "text" }, name: { type: "string" } } } },
      html: { type: "object", description: "Texts.", properties: { title: { type: "string", default: "x" } } },
      flag: { type: "boolean", default: false },
    },
  };
  const labels = (found) => found && [found.from, ...found.options.map(({ label }) => label)];
  return {
    paths: lines.map((_, line) => pathAt(lines, line).join("/")),
    value: labels(completionsAt(schema, lines, 4, 10)),
    key: labels(completionsAt(schema, ["h"], 0, 1)),
    item: labels(completionsAt(schema, lines, 6, 4)),
    begun: completionsAt(schema, ["html"], 0, 4).options[1].apply,
    comment: completionsAt(schema, ["# h"], 0, 3),
    unknown: completionsAt(schema, ["page:", "  a"], 1, 3),
    flag: labels(completionsAt(schema, ["flag: "], 0, 6)),
    meaning: meaningAt(schema, lines, 0, 2),
    nothing: meaningAt(schema, lines, 0, 5),
  };
}"""

DOCUMENT = """# head
html:   # texts
  # a comment inside
  title: 'It''s'   # keep
  max_queries: 5
  mine: {a: 1,b: 2}

  # trailing inside

# before questions
questions:
  # about age
  - name: age
    text: "How old?"  # in years
    custom: yes
  - {name: b, text: c}
consent: null   # none
# the end
"""
CHANGE = """async ([text, path, value]) => {
  const { read, valueAt, withValue } = await import("/static/console/spec_document.js");
  const changed = withValue(text, path, value === null ? undefined : value);
  return changed === null ? null : [changed, valueAt(read(changed), path) ?? null];
}"""


def test_places_completions_and_meanings_follow_the_indentation(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    found = page.evaluate(PLACES)
    item, check = "questions/*", "comprehension/questions/*"
    paths = ["", "html", "", item, item, item, item, "", "samplers", "samplers/Adaptive"]
    assert found["paths"][:10] == paths
    assert found["paths"][11:18] == ["", "comprehension", check, check, "", "practice/*", "practice/*"]
    assert found["value"] == [10, "text", "choice"]
    assert found["key"] == [0, "questions", "html", "flag"]
    assert found["item"] == [4, "type", "name"]
    assert found["begun"] == "html:\n  "
    assert found["comment"] is found["unknown"] is found["nothing"] is None
    assert found["flag"] == [6, "true", "false"]
    assert found["meaning"] == {"key": "html", "from": 0, "to": 4, "kind": "keys", "text": "Texts."}


CHANGES = [
    (["html", "title"], "Bob's", "'It''s'", "'Bob''s'"),
    (["html", "instructions"], "x", "  mine: {a: 1,b: 2}\n", "  mine: {a: 1,b: 2}\n  instructions: x\n"),
    (["html", "max_queries"], None, "  max_queries: 5\n", ""),
    (["html", "mine", "a"], 7, "a: 1", "a: 7"),
    (["questions", 0, "text"], "Age?", '"How old?"', '"Age?"'),
    (["questions", 0, "required"], True, "    custom: yes\n", "    custom: yes\n    required: true\n"),
    (["questions", 1], None, "  - {name: b, text: c}\n", ""),
    (
        ["questions", 2],
        {"name": "z", "options": ["a"]},
        "  - {name: b, text: c}\n",
        "  - {name: b, text: c}\n  - name: z\n    options:\n      - a\n",
    ),
    (["consent", "text"], "I do", "consent: null   # none", "consent:   # none\n  text: I do"),
    (["consent"], None, "consent: null   # none\n", ""),
    (["title"], "New", "# the end\n", "# the end\ntitle: New\n"),
]


@pytest.mark.parametrize(("path", "value", "before", "after"), CHANGES)
def test_a_change_leaves_every_other_character_alone(
    program: Program, page: Page, path: list[object], value: object, before: str, after: str
) -> None:
    page.goto(f"{program.address}/console/login")
    assert page.evaluate(CHANGE, [DOCUMENT, path, value]) == [DOCUMENT.replace(before, after), value]


@pytest.mark.parametrize(
    ("text", "path", "value", "changed"),
    [
        ("", ["html", "title"], "T", "html:\n  title: T\n"),
        ("# only", ["targets"], ["a", "b"], "# only\ntargets:\n  - a\n  - b\n"),
        ("{targets: [a]}", ["html", "title"], "T", "{targets: [a], html: {title: T}}\n"),
        ("html:\nseed: 1\n", ["html", "title"], "T", "html:\n  title: T\nseed: 1\n"),
        ("consent:\n  text: |-\n    a\n\n    b\nseed: 1\n", ["consent", "text"], "c", "consent:\n  text: c\nseed: 1\n"),
    ],
)
def test_keys_are_added_to_any_file(
    program: Program, page: Page, text: str, path: list[object], value: object, changed: str
) -> None:
    page.goto(f"{program.address}/console/login")
    assert page.evaluate(CHANGE, [text, path, value]) == [changed, value]


def test_a_file_that_is_no_yaml_is_left_as_it_is(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    assert page.evaluate(CHANGE, ["a: [1\nb: 2", ["a"], 1]) is None
    assert page.evaluate(CHANGE, ["- a list", ["a"], 1]) is None
