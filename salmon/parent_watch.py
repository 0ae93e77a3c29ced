"""What a process of Salmon does at its start: watch its supervisor, say that it is ready, ask for file descriptors.

It also keeps its files private, and the garbage collector short.

A supervised process stops when its supervisor has ended, for whatever reason.

The supervisor holds the other end of the process's standard input, and writes there only why another of its programs
has died. When the supervisor dies, even by kill -9, the operating system closes that end: reading returns, and the
process asks itself to stop. Processes that were not started by a supervisor are not watched, and keep their standard
input.
"""

import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping, MutableMapping

#: Set by the supervisor for its children.
SUPERVISED = "SALMON_SUPERVISED"
#: What a process prints again and again to show that it is alive.
ALIVE = "alive"
#: More descriptors than this are not asked for, whatever the system permits.
MOST_DESCRIPTORS = 65_536
#: So many young objects may be alive before the collector looks for cycles among them: more than those of 500 requests
#: under way, which form none.
YOUNG_OBJECTS = 100_000
#: The umask of every process of a server: only its own user reads what it writes.
PRIVATE_UMASK = 0o077
#: How long an orderly stop may take before the process is ended at once.
GRACE_SECONDS = 8.0


def watch(environment: Mapping[str, str], causes: MutableMapping[str, str] | None = None) -> None:
    """Watch standard input in a thread if a supervisor started this process; otherwise do nothing.

    `causes` then holds why programs of the supervisor have died, by name, as far as it knows: "" once they run again.
    """
    if environment.get(SUPERVISED) == "1":
        told = {} if causes is None else causes
        threading.Thread(target=_wait_for_end, args=(told,), name="parent-watch", daemon=True).start()


def cause_line(program: str, cause: str) -> bytes:
    """Return what a supervisor writes to tell why a program has died, or "" that it runs again."""
    return f"{program} {cause}\n".encode()


def announce(message: str) -> None:
    """Tell the supervisor that this process is ready.

    The line goes to standard output, which nothing else uses: what a process logs goes to standard error.
    """
    print(f"ready {message}".rstrip(), flush=True)


def raise_descriptor_limit() -> int:
    """Let this process, and those that it starts, open as many files as the system permits; return how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return min(soft, MOST_DESCRIPTORS) if soft != resource.RLIM_INFINITY else MOST_DESCRIPTORS


def spare_collector() -> None:
    """Let the garbage collector pass over everything that is there already: modules, models and routes stay to the end.

    A look through them takes about a tenth of a second, in which no thread does anything else, and a busy web process
    had two of them a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def show_life() -> None:
    """Tell the supervisor that this process is alive; one that shows no life for a
    while is killed and started again.
    """
    if os.environ.get(SUPERVISED) == "1":
        print(ALIVE, flush=True)


def _wait_for_end(causes: MutableMapping[str, str]) -> None:
    unread = b""
    # Not through sys.stdin: at its end, the interpreter would wait for the lock that a reading thread holds.
    while read := os.read(sys.stdin.fileno(), 1024):
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            program, _, cause = line.decode(errors="replace").partition(" ")
            causes[program] = cause
    # The process handles SIGTERM as an orderly stop. If that hangs, the timer ends it.
    overdue = threading.Timer(GRACE_SECONDS, os._exit, args=(1,))
    overdue.daemon = True
    overdue.start()
    os.kill(os.getpid(), signal.SIGTERM)
