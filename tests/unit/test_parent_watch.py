"""What processes do once they are ready."""

import subprocess
import sys

CODE = """
import gc, sys
from salmon import parent_watch
import frontend.app
parent_watch.spare_collector()
left, looks = len(gc.get_objects()), []
gc.callbacks.append(lambda phase, _: looks.append(phase))
kept = [[] for _ in range(30_000)]
print(gc.get_freeze_count() > 10 * left, gc.get_freeze_count() > 100_000, len(looks))
"""


def test_the_collector_passes_over_what_is_there_when_a_process_is_ready() -> None:
    done = subprocess.run((sys.executable, "-c", CODE), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True", "0"], done.stdout
