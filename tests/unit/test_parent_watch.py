"""What processes do once they are ready."""

import subprocess
import sys

from salmon.parent_watch import cause_line

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


WATCHED = """
import os, sys, time
from salmon import parent_watch
causes = {}
parent_watch.watch({parent_watch.SUPERVISED: "1"}, causes)
print("watching", flush=True)
while "store" not in causes:
    time.sleep(0.001)
print(causes, flush=True)
"""


def test_a_process_hears_causes_and_ends_while_its_supervisor_lives() -> None:
    """The interpreter aborts at its end if a thread still reads from sys.stdin."""
    with subprocess.Popen(
        (sys.executable, "-c", WATCHED), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"watching\n"
        line = cause_line("backend", "") + cause_line("store", "input/output error")
        for place in range(len(line)):  # in any pieces
            process.stdin.write(line[place : place + 1])
            process.stdin.flush()
        assert process.stdout.read() == b"{'backend': '', 'store': 'input/output error'}\n"
        assert process.stderr.read() == b""
        assert process.wait(30) == 0
