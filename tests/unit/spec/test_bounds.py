"""No file, however made, takes much memory or long: each is read in a process of its
own that may use little of both.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_MEMORY_BYTES = 700_000_000
_CPU_SECONDS = 20

#: Runs in the child: expressions that make a file.
_FILES = {
    "a hundred megabytes": "b'targets: [a, b, c]\\n' * 5_000_000",
    "a bomb of aliases": "'a0: &a0 [x]\\n' + ''.join(f'a{k}: &a{k} [' + ', '.join([f'*a{k-1}'] * 9) + ']\\n' for k in range(1, 40))",
    "a long list used a thousand times": "'a: &a [' + 'x, ' * 1000 + 'x]\\nb: [' + '*a, ' * 1000 + '*a]'",
    "a chain of aliases": "'a0: &a0 [x]\\n' + ''.join(f'a{k}: &a{k} [*a{k-1}]\\n' for k in range(1, 5000))",
    "a list that holds itself": "'a: &a [*a, *a]'",
    "a mapping merged into itself": "'a: &a {<<: *a}'",
    "a million open brackets": "'[' * 1_000_000",
    "a million open braces": "'{a: ' * 1_000_000",
    "a million dashes": "'- ' * 1_000_000",
    "a million question marks": "'? ' * 1_000_000",
    "a staircase": "''.join(' ' * k + 'a:\\n' for k in range(2000))",
    "a million directives": "'%TAG !a! tag:a\\n' * 300_000",
    "one long text": "'title: ' + 'a' * 4_900_000",
    "one long quotation": "'title: \"' + 'a\\\\n' * 1_600_000",
    "one long key": "'a' * 4_900_000 + ': 1'",
    "two million items": "'targets: [' + 'a,' * 2_400_000 + 'a]'",
    "four hundred thousand keys": "''.join(f'k{k}: 1\\n' for k in range(400_000))",
    "one key four hundred thousand times": "'key: 1\\n' * 400_000",
    "many anchors": "'targets:\\n' + ''.join(f'- &a{k} x\\n' for k in range(300_000))",
    "ninety thousand wrong items": "'targets: [' + '[], ' * 90_000 + 'a]'",
    "ninety thousand wrong keys": "'page:\\n' + ''.join(f'  languagf{k}: 1\\n' for k in range(90_000))",
    "ninety thousand targets": "'targets: [' + ', '.join(map(str, range(90_000))) + ']'",
    "a million tabs": "'\\ta: 1\\n' * 900_000",
    "only comments": "'# nothing\\n' * 490_000",
    "a number without end": "'seed: ' + '9' * 4_000_000",
    "an exponent without end": "'checks: {catch: 1e' + '9' * 4_000_000 + '}'",
    "many documents": "'---\\n' * 1_000_000",
    "much binary": "bytes(range(256)) * 19_000",
}

_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu}))
from salmon.spec import check
problems = check({file})
print(len(problems))
print(problems[0].sentence() if problems else "")
"""


@pytest.mark.parametrize("kind", _FILES)
def test_a_file_made_to_do_harm_is_read_in_little_memory_and_time(kind: str):
    child = _CHILD.format(memory=_MEMORY_BYTES, cpu=_CPU_SECONDS, file=_FILES[kind])
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    count, sentence = done.stdout.split("\n", 1)
    harmless = {"ninety thousand targets"}
    assert (int(count) == 0) == (kind in harmless), sentence
    assert len(sentence) < 1000
