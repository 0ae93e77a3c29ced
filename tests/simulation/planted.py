"""Faults that are planted on purpose, to show that the simulation finds them: each
changes one line of the real program.

A fault is the text of a function or of a Lua script with one part replaced. Where the program has changed so that the
part is not there any more, planting it fails and says so.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol
from unittest.mock import patch

if TYPE_CHECKING:
    from tests.simulation.world import World

Plant = Callable[["World"], AbstractContextManager[Any]]

#: Seeds among which one has to find a planted fault; the first few find most of them.
SEARCHED = 60
REPLAY = "a replay serves the same queries"
TABLE_HEAD = "| planted fault | where | found by | seed |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Fault:
    """A planted fault: what it is about, how it is planted, and the invariant that finds it."""

    where: str
    plant: Plant
    invariant: str


class Trial(Protocol):
    """How a seed is tried: `simulate(seed, fault)` returns the digest of a run and the invariants that it violated."""

    def __call__(self, seed: int, fault: Fault | None) -> tuple[str, set[str]]: ...


def find_seed(fault: Fault, simulate: Trial, *, first: int | None = None) -> int | None:
    """Return a seed that finds a planted fault: its invariant is violated with the fault, and holds without.

    The seed `first` is tried before the others. Which seeds find a fault changes with every change of the program, so
    none is written down as the only one. None is returned where none of `SEARCHED` does.
    """
    for seed in dict.fromkeys((*(() if first is None else (first,)), *range(SEARCHED))):
        digest, violated = simulate(seed, fault)
        differs = fault.invariant == REPLAY and simulate(seed, fault)[0] != digest
        if (differs or fault.invariant in violated) and fault.invariant not in simulate(seed, None)[1]:
            return seed
    return None


def row_of(name: str, seed: int | str) -> str:
    """Return the row of the manual's table that tells of a planted fault."""
    fault = PLANTED[name]
    return f"| {name} | {fault.where} | {fault.invariant} | {seed} |"


def read_seed(manual: str, name: str) -> int | None:
    """Return the seed that the manual's table gives for a planted fault."""
    start = row_of(name, "").removesuffix(" |")
    found = next((line for line in manual.splitlines() if line.startswith(start)), "")
    seed = found.removeprefix(start).removesuffix(" |")
    return int(seed) if seed.isdecimal() else None


def write_seeds(manual: str, seeds: Mapping[str, int]) -> str:
    """Return the manual with a table that has these seeds."""
    before, head, rest = manual.partition(TABLE_HEAD)
    _, end, after = rest.partition("\n\n")
    return before + head + "\n".join(row_of(name, seed) for name, seed in seeds.items()) + end + after


def in_script(place: str, old: str, new: str) -> Plant:
    """Return how to replace a part of a Lua script: `module:NAME`."""
    module_name, _, name = place.partition(":")

    def plant(world: World) -> AbstractContextManager[Any]:
        del world
        module = import_module(module_name)
        return patch.object(module, name, _replaced(place, getattr(module, name), old, new))

    return plant


def in_function(place: str, old: str, new: str) -> Plant:
    """Return how to replace a part of a function or method: `module:function` or `module:Class.method`."""
    module_name, _, name = place.partition(":")

    @contextmanager
    def plant(world: World) -> Generator[None]:
        del world
        module = import_module(module_name)
        function: Any = module
        for part in name.split("."):
            function = inspect.getattr_static(function, part)
        function = getattr(function, "__func__", function)
        text = _replaced(place, textwrap.dedent(inspect.getsource(function)), old, new)
        lines = text.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith(("def ", "async def ")))
        made = compile("from __future__ import annotations\n" + "\n".join(lines[first:]), str(module.__file__), "exec")
        code = next(each for each in made.co_consts if isinstance(each, CodeType))
        changed = _function(function)
        whole, changed.__code__ = changed.__code__, code
        try:
            yield
        finally:
            changed.__code__ = whole

    return plant


def _function(found: Any) -> FunctionType:
    assert isinstance(found, FunctionType), found
    return found


def _replaced(place: str, text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{place} has {text.count(old)} times what a planted fault replaces: {old}"
    return text.replace(old, new)


@contextmanager
def _no_sync(world: World) -> Generator[None]:
    world.server.always_sync = False
    yield


_ANSWERS = "frontend.store.answers:RECORD_ANSWER"
_TAKE = "frontend.store.turns:TAKE_QUERY"
_REMEMBER = "frontend.store.turns:REMEMBER_QUERY"
_TURN = "frontend.store.turns:BEGIN_TURN"
_PUBLISH = "backend.store:PUBLISH"
_ROUTES = "frontend.participant.routes:"
_TRIALS = "frontend.participant.trials:"
_LEARNER = "backend.learner:Learner."

PLANTED: dict[str, Fault] = {
    "the store syncs once a second": Fault("store, appendfsync", _no_sync, "acknowledged answers are stored once"),
    "an answer is acknowledged before it is stored": Fault(
        "POST answers",
        in_function(
            _TRIALS + "_keep",
            "recorded = await context.store.answers.record(answer)\n",
            "import asyncio, types\n"
            "        asyncio.ensure_future(context.store.answers.record(answer))\n"
            "        recorded = types.SimpleNamespace(duplicate=False, count=1, total=1)\n",
        ),
        "acknowledged answers are stored once",
    ),
    "a token that was answered is recorded again": Fault(
        "RECORD_ANSWER",
        in_script(_ANSWERS, "if before then", "if false then"),
        "acknowledged answers are stored once",
    ),
    "an answer is counted twice": Fault(
        "RECORD_ANSWER",
        in_script(
            _ANSWERS, "redis.call('HINCRBY', KEYS[5], 'answers', 1)", "redis.call('HINCRBY', KEYS[5], 'answers', 2)"
        ),
        "counters equal the recount",
    ),
    "counters move for a duplicate too": Fault(
        "RECORD_ANSWER",
        in_script(_ANSWERS, "if before then", "if before then redis.call('HINCRBY', KEYS[4], 'answers', 1)"),
        "counters equal the recount",
    ),
    "an answered query stays pending": Fault(
        "RECORD_ANSWER",
        in_script(_ANSWERS, "redis.call('HDEL', KEYS[3], ARGV[1])", ""),
        "what is served is pending",
    ),
    "the stream of answers is trimmed": Fault(
        "RECORD_ANSWER",
        in_script(_ANSWERS, "'XADD', KEYS[1], '*'", "'XADD', KEYS[1], 'MAXLEN', '15', '*'"),
        "the stream only grows",
    ),
    "a signature is not checked": Fault(
        "POST answers",
        in_function(
            "frontend.security:Signer._payload",
            "return serializer.loads(text[:LONGEST_TOKEN])",
            "return serializer.load_payload(text.rpartition('.')[0].encode())",
        ),
        "only given answers are stored",
    ),
    "a winner that was not shown is taken": Fault(
        "POST answers",
        in_function(_TRIALS + "_answer_of", "if body.winner not in {served.left, served.right}:", "if False:"),
        "only given answers are stored",
    ),
    "a taken query stays in the list": Fault(
        "TAKE_QUERY",
        in_script(_TAKE, "redis.call('LREM', KEYS[1], 1, element)", ""),
        "published queries are served once",
    ),
    "queries that were seen are taken again": Fault(
        "TAKE_QUERY",
        in_script(_TAKE, "if redis.call('SISMEMBER', KEYS[2], key) == 0 then", "if true then"),
        "no query is asked twice",
    ),
    "the last head is ignored": Fault(
        "TAKE_QUERY",
        in_script(_TAKE, "if string.match(key, '^%d+') ~= last_head then", "if true then"),
        "another head where there is one",
    ),
    "a taken query is not pending": Fault(
        "TAKE_QUERY",
        in_script(_TAKE, "redis.call('HSET', KEYS[3], ARGV[1], key .. '|' .. ARGV[2])", ""),
        "what is served is pending",
    ),
    "the first random candidate is taken always": Fault(
        "REMEMBER_QUERY",
        in_script(_REMEMBER, "if redis.call('SISMEMBER', KEYS[1], key_of(ARGV[i])) == 0 then", "if true then"),
        "no query is asked twice",
    ),
    "an outdated fence is accepted": Fault(
        "PUBLISH",
        in_script(_PUBLISH, "if redis.call('GET', KEYS[4]) ~= ARGV[1] then", "if false then"),
        "only the newest backend publishes",
    ),
    "an ended job is begun again": Fault(
        "BEGIN_REQUEST",
        in_script("backend.store:BEGIN_REQUEST", "if state ~= 'waiting' and state ~= 'running' then", "if false then"),
        "a job has one owner",
    ),
    "an ended job is cancelled": Fault(
        "CANCEL_REQUEST",
        in_script(
            "frontend.store.jobs:CANCEL_REQUEST",
            "if state ~= 'waiting' and state ~= 'running' then return state end",
            "state = 'waiting'",
        ),
        "a job has one owner",
    ),
    "any backend writes about a job": Fault(
        "NOTE_REQUEST",
        in_script("backend.store:NOTE_REQUEST", "or backend ~= ARGV[1]", ""),
        "a job has one owner",
    ),
    "the export skips its last page": Fault(
        "READ_ANSWERS",
        in_script(
            "frontend.store.export_reader:READ_ANSWERS",
            "for i = 1, #page do",
            "if #page < tonumber(ARGV[3]) then return '' end\nfor i = 1, #page do",
        ),
        "exports equal the stream",
    ),
    "everybody who returns is somebody new": Fault(
        "POST arrive",
        in_script(
            "frontend.store.participants:ARRIVE",
            "redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])",
            "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])",
        ),
        "a person is one participant",
    ),
    "a step is not stored": Fault(
        "POST steps/{step}",
        in_function(
            _ROUTES + "take_step",
            "await context.store.participants.change(session.experiment, session.participant, result.change)",
            "pass",
        ),
        "everybody finishes",
    ),
    "a spare query may come before a fixed one": Fault(
        "GET query",
        in_function("frontend.participant.queries:last_fixed", "return max(fixed, default=0)", "return 0"),
        "fixed queries are complete",
    ),
    "a turn that is asked for again begins anew": Fault(
        "BEGIN_TURN",
        in_script(_TURN, "local entry = open[number] ~= '?' and open[number]", "local entry = false"),
        "fixed queries are complete",
    ),
    "nobody is admitted": Fault(
        "ADMIT",
        in_script(
            "frontend.store.participants:ADMIT",
            "if wait > 0 then return math.ceil(wait) end",
            "if true then return 1000 end",
        ),
        "everybody finishes",
    ),
    "the code is shown to whoever asks": Fault(
        "POST finish",
        in_function(_ROUTES + "finish", "if missing > 0 and not incomplete:", "if False:"),
        "nobody gets the code before the end",
    ),
    "the end counts queries for answers": Fault(
        "POST finish",
        in_function(_ROUTES + "finish", "body.given, 1), participant.answers", "body.given, 1), participant.turns"),
        "a code means complete",
    ),
    "an answer is changed as it is stored": Fault(
        "RECORD_ANSWER",
        in_script(_ANSWERS, "local id = ", "ARGV[#ARGV - 2] = '0'\nlocal id = "),
        "checksums are right",
    ),
    "a deleted experiment is written to": Fault(
        "RECORD_ANSWER",
        in_script(_ANSWERS, "if redis.call('EXISTS', KEYS[5]) == 0 then return false end", ""),
        "a deleted experiment takes nothing more",
    ),
    "a deletion leaves the arrivals": Fault(
        "deletion",
        in_function("frontend.store.experiments:Experiments.delete", "(keys.arrivals, keys.places", "(keys.places"),
        "a deletion leaves nobody's data",
    ),
    "somebody arrives at a deleted experiment": Fault(
        "ARRIVE",
        in_script(
            "frontend.store.participants:ARRIVE", "if redis.call('EXISTS', KEYS[2]) == 0 then return false end", ""
        ),
        "a deletion leaves nobody's data",
    ),
    "events are not counted": Fault(
        "CHANGE_WHERE_KNOWN",
        in_script("frontend.store.connection:CHANGE_WHERE_KNOWN", "for i = 1, #KEYS - known do", "for i = 2, 1 do"),
        "everybody finishes",
    ),
    "a listed query may be passed over": Fault(
        "GET /query",
        in_function("frontend.store.turns:Turn.entry", '"G" if may_pass else "L"', '"G"'),
        "a listed query is repeated until answered",
    ),
    "the newest number is that of the last request": Fault(
        "BEGIN_TURN",
        in_script(_TURN, "'top', math.max(top, number)", "'top', number"),
        "turns only go forward",
    ),
    "any number of turns may be open": Fault(
        "BEGIN_TURN",
        in_script(_TURN, ">= tonumber(ARGV[4]) then", ">= 1000 then"),
        "few turns are open",
    ),
    "turns that have ended count as open": Fault(
        "BEGIN_TURN",
        in_script(_TURN, "redis.call('HDEL', KEYS[2], known)", "kept = kept + 1"),
        "everybody finishes",
    ),
    "a change keeps the status alone": Fault(
        "CHANGE_STATUS",
        in_script(
            "frontend.store.participants:CHANGE_STATUS",
            "redis.call('HSET', key, 'status', after, ...)",
            "redis.call('HSET', key, 'status', after)",
        ),
        "everybody finishes",
    ),
    "a completed participant is counted twice": Fault(
        "COMPLETE",
        in_script(
            "frontend.store.participants:COMPLETE",
            "redis.call('HINCRBY', KEYS[2], ARGV[2], 1)",
            "redis.call('HINCRBY', KEYS[2], ARGV[2], 2)",
        ),
        "the completed are counted",
    ),
    "events are forgotten": Fault(
        "POST events",
        in_function(_ROUTES + "add_events", "if not is_tryout(session.participant):", "if len(entries) < 2:"),
        "acknowledged events are stored",
    ),
    "a failure of the store is not translated": Fault(
        "every route",
        in_function(
            "frontend.store.connection:_translated",
            "except (OSError, TimeoutError) as error:",
            "except KeyError as error:",
        ),
        "errors are sentences",
    ),
    "a restarted learner counts generations from 0": Fault(
        "learner",
        in_function(_LEARNER + "resume", 'generation=int(numbers["generation"]),', "generation=0,"),
        "the cursor never falls",
    ),
    "the cursor moves before the answers are fitted": Fault(
        "learner",
        in_function(_LEARNER + "_publish_model", '"cursor": model.cursor,', '"cursor": self.answers.cursor,'),
        "a model is of the stream",
    ),
    "answers that are read twice are learned twice": Fault(
        "learner",
        in_function("backend.experiment:Experiment.absorb", "if not is_later(stream_id, last):", "if False:"),
        "a model is of the stream",
    ),
    "the last answer waits for another": Fault(
        "learner's plan",
        in_function(
            "backend.plan:next_steps",
            "progress.received > progress.absorbed,",
            "progress.received > progress.absorbed + 1,",
        ),
        "everything is learned",
    ),
    "a restarted learner cannot read its model": Fault(
        "learner",
        in_function("backend.learner:LiveAccuracy.of", 'numbers.get("held_recent", "")', 'numbers["held"]'),
        "nothing unexpected",
    ),
    "random queries are not drawn from the seed": Fault(
        "passive samplers",
        in_function(
            "salmon.samplers.passive:_stream", 'random.Random(":".join(str(part) for part in parts))', "random.Random()"
        ),
        "a replay serves the same queries",
    ),
}
