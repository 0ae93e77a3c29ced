"""The participant page's modules are joined into one script; unsupported lines are refused."""

import gzip
import itertools
from pathlib import Path

import pytest

from frontend.pages import join_modules, read_client, read_script
from tests.program import REPOSITORY

FOLDER = REPOSITORY / "frontend" / "static" / "participant"


def test_the_script_contains_every_module_once_and_after_those_it_imports():
    text = read_script(FOLDER, "main").plain.decode()
    names = [path.stem for path in FOLDER.glob("*.js")]
    places = {name: text.index(f"joined.{name} = ") for name in names}
    assert all(text.count(f"joined.{name} = ") == 1 for name in names)
    for name, other in itertools.permutations(names, 2):
        if f'from "./{other}.js"' in (FOLDER / f"{name}.js").read_text():
            assert places[other] < places[name]


def test_the_name_of_the_script_changes_with_any_module_and_compression_keeps_the_text(tmp_path: Path):
    (tmp_path / "main.js").write_text('import { two } from "./numbers.js";\nconsole.log(two);\n')
    (tmp_path / "numbers.js").write_text("export const two = 2;\n")
    before = read_script(tmp_path, "main")
    (tmp_path / "numbers.js").write_text("export const two = 3;\n")
    after = read_script(tmp_path, "main")
    assert before.name != after.name
    assert read_script(tmp_path, "main") == after
    assert gzip.decompress(after.compressed) == after.plain


def test_comments_on_lines_of_their_own_are_not_sent_and_no_string_is_taken_for_one(tmp_path: Path):
    code = """const a = "// no comment"; // stays
const b = `/** no comment */`;
const c = a /* stays */ + b;
"""
    (tmp_path / "main.js").write_text(f"// Says what it does.\n/** One line. */\n{code}  /**\n   * More * lines. **/\n")
    plain = read_script(tmp_path, "main").plain.decode()
    assert code in plain
    assert "Says" not in plain
    assert "line" not in plain


@pytest.mark.parametrize(
    ("main", "sentence"),
    [
        ("const a = `\n// text\n`;", "cannot be joined"),
        ('import * as all from "./a.js";', "cannot be joined"),
        ('import {\n  a,\n} from "./a.js";', "cannot be joined"),
        ("export default 1;", "cannot be joined"),
        ('import { a } from "./nowhere.js";', r"main.js imports nowhere.js, which is not there"),
        ('import { b } from "./b.js";', "import each other"),
    ],
)
def test_a_line_that_cannot_be_joined_is_refused_with_the_name_of_its_module(main: str, sentence: str):
    modules = {
        "main": main,
        "a": "export const a = 1;",
        "b": 'import { c } from "./c.js";\nexport const b = 1;',
        "c": 'import { b } from "./b.js";\nexport const c = 1;',
    }
    with pytest.raises(ValueError, match=sentence):
        join_modules(modules, "main")


def test_the_client_shares_the_modules_of_the_page_and_exports_its_own():
    page = read_script(FOLDER, "main").plain.decode()
    client = read_client(FOLDER.parent, "salmon").plain.decode()
    both = read_client(FOLDER.parent, "salmon", "jspsych").plain.decode()
    for shared in ("outbox", "run", "api", "answer_storage", "stimuli"):
        module = page.partition(f"joined.{shared} = ")[2].partition("\njoined.")[0].partition("\n})();")[0]
        assert module in client
    assert client.endswith("export const { Salmon } = joined.salmon;\n")
    assert both.endswith("export const { Salmon } = joined.salmon;\nexport const { jsPsychSalmon } = joined.jspsych;\n")
    assert "joined.screens" not in client  # what only our own page shows stays away
