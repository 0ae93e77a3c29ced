"""The learning process's access to Redis, as verbs.

It reads answers and specs and can write neither; the server's access list enforces this. When Redis is away, every verb
raises StoreError and the service waits and tries again. Nothing is lost, because what was not published is done again.

The Lua scripts come first. Each runs atomically, and the comment before it states what it guarantees.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from salmon.answer_files.published_map import PublishedMap
from salmon.errors import StoreError
from salmon.learning.features import Features
from salmon.logs import fields
from salmon.records import Answer, Query
from salmon.spec import Manifest, Spec, read_stored_spec, targets_of
from salmon.wire import (
    BACKEND,
    EXPERIMENTS,
    KEPT_SECONDS,
    REQUESTS,
    Heartbeat,
    Keys,
    Request,
    decode_answer,
    decode_array,
    decode_json,
    encode_job_status,
    encode_query,
    is_intact,
    request,
)
from salmon.wire.answer_pages import (
    READ_ANSWERS,
    AnswerColumns,
    columns_of,
    damaged_in,
    end_of,
    without,
)
from salmon.wire.keys import place_of

#: Queries, model and a history line are written together, and only by the newest backend: with an older fence nothing
#: is written and nil is returned. There is no moment without queries. Queries that were taken since the search read the
#: pending ones are left out of the new list, unless they are random draws. Returns the length of the new list. KEYS
#: queries, model, history, fence, pending · ARGV fence, history kept, number of model fields f, f names and values of
#: the model, number of history fields h, h names and values of the line, then the queries
PUBLISH = """
if redis.call('GET', KEYS[4]) ~= ARGV[1] then return false end
local at = 3
local function pairs_from(place)
  local taken = {}
  for i = place + 1, place + 2 * tonumber(ARGV[place]) do taken[#taken + 1] = ARGV[i] end
  return taken
end
local model = pairs_from(at)
at = at + 1 + #model
local line = pairs_from(at)
at = at + 1 + #line
if #model > 0 then redis.call('HSET', KEYS[2], unpack(model)) end
if #line > 0 then redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], '*', unpack(line)) end
if at > #ARGV then return redis.call('LLEN', KEYS[1]) end
local waiting = {}
local pending = redis.call('HGETALL', KEYS[5])
for i = 2, #pending, 2 do waiting[string.match(pending[i], '^[^|]+')] = true end
redis.call('DEL', KEYS[1])
local piece, length = {}, 0
for i = at, #ARGV do
  local key, kind = string.match(ARGV[i], '^([^|]+)|[^|]*|([^|]*)')
  if kind == 'random' or not waiting[key] then
    piece[#piece + 1] = ARGV[i]
    if #piece == 500 then
      length = redis.call('RPUSH', KEYS[1], unpack(piece))
      piece = {}
    end
  end
end
if #piece > 0 then length = redis.call('RPUSH', KEYS[1], unpack(piece)) end
return length
"""

#: Claim a job that is waiting, or that another backend has left running; only the claimant may write about it from then
#: on. A job that was cancelled, or that too many backends have begun without ending it, ends here. Returns its new
#: state.
#: KEYS request · ARGV backend, now, seconds to live, most tries, the sentence for too many tries
BEGIN_REQUEST = """
local state, cancel, backend, tries, began =
  unpack(redis.call('HMGET', KEYS[1], 'state', 'cancel', 'backend', 'tries', 'began_ms'))
if state ~= 'waiting' and state ~= 'running' then return state end
local function finish(new, ...)
  redis.call('HSET', KEYS[1], 'state', new, 'note', '', 'ended_ms', ARGV[2], ...)
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  return new
end
if cancel == '1' then return finish('cancelled') end
tries = tonumber(tries or '0')
if backend ~= ARGV[1] then
  if tries >= tonumber(ARGV[4]) then return finish('failed', 'error', ARGV[5]) end
  redis.call('HSET', KEYS[1], 'backend', ARGV[1], 'tries', tries + 1)
end
if (began or '0') == '0' then redis.call('HSET', KEYS[1], 'began_ms', ARGV[2]) end
redis.call('HSET', KEYS[1], 'state', 'running')
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 'running'
"""

#: Write about a job that this backend has claimed. Nothing is written if another backend has claimed it, if it has
#: expired, or if it was cancelled; a cancelled job ends here. Returns its new state.
#: KEYS request · ARGV backend, now, seconds to live, then field names and values
NOTE_REQUEST = """
local state, cancel, backend = unpack(redis.call('HMGET', KEYS[1], 'state', 'cancel', 'backend'))
if state ~= 'running' or backend ~= ARGV[1] then return 'lost' end
redis.call('EXPIRE', KEYS[1], ARGV[3])
if cancel == '1' then
  redis.call('HSET', KEYS[1], 'state', 'cancelled', 'note', '', 'ended_ms', ARGV[2])
  return 'cancelled'
end
if #ARGV > 3 then redis.call('HSET', KEYS[1], unpack(ARGV, 4)) end
return redis.call('HGET', KEYS[1], 'state')
"""


log = logging.getLogger("salmon.backend")

#: Answers read per page, of which the server writes a page that is replayed as one text; and generations kept in a
#: history.
PAGE = 5000
REPLAY_PAGE = 1000
HISTORY_KEPT = 100_000
#: Lines of the history read in one piece: some hold coordinates.
_LINES_PAGE = 250
#: A query taken this long ago and not answered may be asked again.
PENDING_MS = 10 * 60 * 1000

Entries = list[tuple[str, dict[str, str]]]


def decode_intact(experiment: str, page: Entries) -> Iterator[tuple[str, Answer]]:
    """Yield (stream id, answer) of entries that are as they were recorded; one that is
    damaged must not end the learning.
    """
    for stream_id, entry in page:
        answer = None
        if is_intact([part for pair in entry.items() for part in pair]):
            with suppress(KeyError, ValueError):
                answer = decode_answer(experiment, entry)
        if answer is not None:
            yield stream_id, answer
        else:
            log.error("damaged answer left out", extra=fields(experiment=experiment, answer=stream_id))


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment as the store lists it. `erasures` counts how often answers were removed."""

    experiment: str
    slug: str
    state: str
    revision: int
    erasures: int = 0


@dataclass(frozen=True)
class StoredModel:
    """What a learner published last: everything it needs to continue after a restart."""

    coordinates: NDArray[np.float64]
    reported: NDArray[np.float64] | None
    numbers: dict[str, str]


def _shown_map(sampler: str, generation: str, coordinates: NDArray[Any]) -> PublishedMap:
    return PublishedMap(
        tuple(range(len(coordinates))), coordinates.astype(np.float64), f"{sampler}, generation {generation}"
    )


class Store:
    """Verbs on a pool of connections, which threads may share."""

    def __init__(self, url: str, *, patient: bool = True) -> None:
        # One client for text, one for the bytes of coordinates; redis-py's types are looser than what it returns.
        options: dict[str, Any] = {"socket_connect_timeout": 5, "socket_timeout": 30}
        if not patient:  # whoever waits here is waited for
            options = {"socket_connect_timeout": 3, "socket_timeout": 3, "retry": Retry(NoBackoff(), 0)}
        self._client: Any = Redis.from_url(url, decode_responses=True, encoding_errors="replace", **options)
        self._binary: Any = Redis.from_url(url, **options)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._binary.close()

    def beat(self, heartbeat: Heartbeat, *, lives_seconds: int) -> None:
        """Publish the heartbeat; it expires by itself."""
        self._do(lambda: self._client.set(BACKEND, heartbeat.encode(), ex=lives_seconds))

    def list_experiments(self) -> tuple[ExperimentRecord, ...]:
        """Return every experiment."""
        found: list[ExperimentRecord] = []
        for slug, experiment in sorted(self._do(lambda: self._client.hgetall(EXPERIMENTS)).items()):
            key = Keys(experiment).state
            state, revision, erasures = self._do(
                lambda key=key: self._client.hmget(key, ["state", "revision", "erasures"])
            )
            if state:
                found.append(ExperimentRecord(experiment, slug, state, int(revision), int(erasures or 0)))
        return tuple(found)

    def find_experiment(self, experiment: str) -> ExperimentRecord | None:
        """Return the experiment of this id, or None if there is none."""
        slug, state, revision = self._do(
            lambda: self._client.hmget(Keys(experiment).state, ["slug", "state", "revision"])
        )
        return ExperimentRecord(experiment, slug, state, int(revision)) if state else None

    def read_spec(self, experiment: str, revision: int) -> tuple[Spec, int]:
        """Return one revision of an experiment's spec, and how many targets it has."""
        spec, manifest = self._read_revision(experiment, revision)
        return spec, len(targets_of(spec, manifest))

    def read_features(self, experiment: str, revision: int) -> Features | None:
        """Return the features of the targets in one revision of an experiment; None where they have none."""
        _, manifest = self._read_revision(experiment, revision)
        rows = manifest.features() if manifest is not None else ()
        return Features.of(rows) if rows else None

    def _read_revision(self, experiment: str, revision: int) -> tuple[Spec, Manifest | None]:
        value = self._do(lambda: self._client.hget(Keys(experiment).spec, str(revision)))
        if value is None:
            raise StoreError(f"Experiment {experiment!r} has no revision {revision}.")
        stored = decode_json(value)
        manifest = Manifest.load(stored["manifest"]) if stored["manifest"] else None
        return read_stored_spec(stored["spec"], manifest), manifest

    def take_over(self, experiment: str) -> int:
        """Become the backend of an experiment; return the fence with which this one may
        publish and earlier ones may not.
        """
        return int(self._do(lambda: self._client.incrby(Keys(experiment).fence, 1)))

    def read_answers(self, experiment: str, *, after: str, until: str = "+") -> Iterator[tuple[str, Answer]]:
        """Yield (stream id, answer) after one place in the stream up to another, in order, page by page."""
        key = Keys(experiment).answers
        while True:
            start = f"({after}"
            page: Entries = self._do(lambda start=start: self._client.xrange(key, min=start, max=until, count=PAGE))
            yield from decode_intact(experiment, page)
            after = page[-1][0] if page else after
            if len(page) < PAGE:
                return

    def read_columns(self, experiment: str, *, after: str) -> Iterator[AnswerColumns]:
        """Yield the answers after a place in the stream as columns, in order, page by
        page; damaged ones are left out.
        """
        key = Keys(experiment).answers
        while True:
            text: str = self._do(
                lambda start=f"({after}": self._client.eval_ro(READ_ANSWERS, 1, key, start, "+", REPLAY_PAGE)
            )
            damaged = damaged_in(text)
            for stream_id in damaged:
                log.error("damaged answer left out", extra=fields(experiment=experiment, answer=stream_id))
            yield from columns_of(experiment, without(text, damaged) if damaged else text)
            count, after = end_of(text)
            if count < REPLAY_PAGE:
                return

    def last_request(self) -> str:
        """Return the id of the last job that was asked for."""
        entries = self._do(lambda: self._client.xrevrange(REQUESTS, count=1))
        return str(entries[0][0]) if entries else "0"

    def wait(self, cursors: Mapping[str, str], *, at_most_ms: int) -> dict[str, Entries]:
        """Return the entries after the cursors of several streams; block in Redis
        until there are some or time is up.
        """
        found = self._do(lambda: self._client.xread(cast("Any", dict(cursors)), block=at_most_ms, count=PAGE))
        return dict(found or ())

    def read_pending(self, experiment: str, sampler: str, *, now_ms: int) -> NDArray[np.int32]:
        """Return the queries (p, 3) that are taken and not answered; those taken too long ago are dropped."""
        key = Keys(experiment).pending(sampler)
        waiting: dict[str, str] = self._do(lambda: self._client.hgetall(key))
        stale = [token for token, value in waiting.items() if now_ms - int(value.rpartition("|")[2]) > PENDING_MS]
        if stale:
            self._do(lambda: self._client.hdel(key, *stale))
        rows = [
            tuple(map(int, value.partition("|")[0].split(",")))
            for token, value in waiting.items()
            if token not in stale
        ]
        return np.array(rows, dtype=np.int32).reshape(-1, 3)

    def count_queries(self, experiment: str, sampler: str) -> int:
        """Return how many queries are published and not taken."""
        return int(self._do(lambda: self._client.llen(Keys(experiment).queries(sampler))))

    def read_model(self, experiment: str, sampler: str) -> StoredModel | None:
        """Return what was published last, here or by the server it was imported from; None if nothing was."""
        values: dict[bytes, bytes] = {}
        for key in (Keys(experiment).model(sampler), Keys(experiment).restored(sampler)):
            values = self._do(lambda key=key: self._binary.hgetall(key))
            if b"coordinates" in values:
                break
        else:
            return None
        values.pop(b"spread", None)  # for the console only
        arrays = {name: decode_array(values.pop(name)) for name in (b"coordinates", b"reported") if name in values}
        numbers = {name.decode(): value.decode() for name, value in values.items()}
        return StoredModel(arrays[b"coordinates"], arrays.get(b"reported"), numbers)

    def publish(
        self,
        experiment: str,
        sampler: str,
        fence: int,
        *,
        queries: Sequence[Query] = (),
        model: Mapping[str, str | int | float | bytes] | None = None,
        line: Mapping[str, str | int | float | bytes] | None = None,
    ) -> int | None:
        """Replace queries and model and append a history line (atomic); return the number of queries in the list.

        Without `queries` the list stays as it is. Return None, and write nothing, if this fence is not the newest.
        """
        keys = Keys(experiment)
        names = (
            keys.queries(sampler),
            keys.model(sampler),
            keys.history(sampler),
            keys.fence,
            keys.pending(sampler),
        )
        arguments: list[Any] = [fence, HISTORY_KEPT]
        for values in (model or {}, line or {}):
            arguments += [len(values), *(part for pair in values.items() for part in pair)]
        arguments += [encode_query(query) for query in queries]
        return self._do(lambda: self._client.eval(PUBLISH, len(names), *names, *arguments))

    def find_generation(self, experiment: str, sampler: str, generation: int) -> str | None:
        """Return the cursor of a generation's model, or None if the history does not have it."""
        for key in (Keys(experiment).history(sampler), Keys(experiment).restored_history(sampler)):
            before, page = "+", None
            while page is None or len(page) == PAGE:
                page = self._do(lambda key=key, before=before: self._binary.xrevrange(key, max=before, count=PAGE))
                for stream_id, line in page:
                    before = f"({stream_id.decode()}"
                    if int(line[b"generation"]) == generation:
                        return line[b"cursor"].decode()
        return None

    def read_shown(self, experiment: str, sampler: str) -> PublishedMap | None:
        """Return the map that the console shows of a sampler; None before the first."""
        model = self.read_model(experiment, sampler) if sampler else None
        if model is None:
            return None
        shown = model.coordinates if model.reported is None else model.reported
        return _shown_map(sampler, model.numbers.get("generation", ""), shown)

    def find_shown(self, experiment: str, sampler: str, *, until: str) -> PublishedMap | None:
        """Return the map that was shown of a sampler up to a cursor; None if none was kept."""
        for key in (Keys(experiment).history(sampler), Keys(experiment).restored_history(sampler)):
            before, page = "+", None
            while page is None or len(page) == _LINES_PAGE:
                page = self._do(
                    lambda key=key, before=before: self._binary.xrevrange(key, max=before, count=_LINES_PAGE)
                )
                for stream_id, line in page:
                    before = f"({stream_id.decode()}"
                    if b"coordinates" in line and place_of(line[b"cursor"].decode()) <= place_of(until):
                        return _shown_map(sampler, line[b"generation"].decode(), decode_array(line[b"coordinates"]))
        return None

    def unended_requests(self) -> tuple[Request, ...]:
        """Return the jobs that wait or that some backend has begun and not ended, in the
        order in which they were asked for.
        """
        asked = [
            found for _, entry in self._do(lambda: self._client.xrange(REQUESTS)) if (found := Request.decode(entry))
        ]
        pipeline = self._client.pipeline(transaction=False)
        for item in asked:
            pipeline.hget(request(item.request), "state")
        states: list[str | None] = self._do(pipeline.execute)
        return tuple(item for item, state in zip(asked, states, strict=True) if state in {"waiting", "running"})

    def begin_request(
        self, identifier: str, backend: str, *, now_ms: int, most_tries: int, given_up: str
    ) -> str | None:
        """Claim a job (atomic) and return its state: "running" if this backend is to carry it out.

        `given_up` is the error of a job that `most_tries` backends have begun and not ended.
        """
        return self._do(
            lambda: self._client.eval(
                BEGIN_REQUEST, 1, request(identifier), backend, now_ms, KEPT_SECONDS, most_tries, given_up
            )
        )

    def note_request(self, identifier: str, backend: str, values: Mapping[str, Any], *, now_ms: int) -> str:
        """Write the progress of a job (atomic) and return its state.

        "cancelled" and "lost" (expired, or claimed by another backend) mean that nothing was written and that the job
        must be left alone.
        """
        pairs = [part for pair in encode_job_status(values).items() for part in pair]
        return self._do(
            lambda: self._client.eval(NOTE_REQUEST, 1, request(identifier), backend, now_ms, KEPT_SECONDS, *pairs)
        )

    @staticmethod
    def _do(command: Callable[[], Any]) -> Any:
        try:
            return command()
        except RedisError as error:
            raise StoreError(f"The store does not answer: {error}.", hint="Trying again.") from error
