"""Write what an import brings, under an experiment that nobody can find before the last verb.

After a crash the same import is repeated: it skips what it has written already.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from frontend.errors import ConflictError
from frontend.store.connection import Verbs
from salmon.errors import StoreError
from salmon.wire import EXPERIMENTS, Keys
from salmon.wire.keys import place_of

#: Answers appended in one call: the server is busy with it for a few milliseconds.
PAGE = 500
#: Queries noted as seen in one command.
_QUERIES = 5000

#: Appends answers of the same fields at their own places in the log, except those that were appended before. Returns
#: its length.
#: KEYS answers · ARGV number of fields, their names, then for each answer: id, values
RESTORE_ANSWERS = """
local count = tonumber(ARGV[1])
local entry = {}
for field = 1, count do entry[2 * field - 1] = ARGV[1 + field] end
for at = count + 2, #ARGV, count + 1 do
  for field = 1, count do entry[2 * field] = ARGV[at + field] end
  local done = redis.pcall('XADD', KEYS[1], ARGV[at], unpack(entry))
  if type(done) == 'table' and done['err'] and not string.find(done['err'], 'equal or smaller') then return done end
end
return redis.call('XLEN', KEYS[1])
"""


class Importer(Verbs):
    """Verbs of an import; each may be repeated."""

    async def may_hold(self, experiment: str, last: str, count: int) -> bool:
        """Return whether this id is free for a log that ends at `last` with `count` answers: unused, or begun by the
        same import.
        """
        keys = Keys(experiment)
        exists, length, newest = await self._connection.together(
            lambda pipeline: (
                pipeline.exists(keys.state),
                pipeline.xlen(keys.answers),
                pipeline.xrevrange(keys.answers, count=1),
            )
        )
        return not exists and (not length or (length <= count and place_of(newest[0][0]) <= place_of(last)))

    async def append_answers(self, experiment: str, entries: Sequence[tuple[str, Mapping[str, str]]]) -> int:
        """Append answers at their own places and note their tokens; return how many the log has then."""
        keys = Keys(experiment)
        tokens: dict[str, dict[str, str]] = {}
        for stream_id, fields in entries:
            tokens.setdefault(fields["participant"], {})[fields["token"]] = stream_id
        length, _ = await asyncio.gather(
            self._append(keys.answers, entries),
            self._connection.together(
                lambda pipeline: [
                    pipeline.hset(keys.answered(participant), mapping=cast("Any", found))
                    for participant, found in tokens.items()
                ]
            ),
        )
        return length

    async def _append(self, stream: str, entries: Sequence[tuple[str, Mapping[str, str]]]) -> int:
        length = 0
        for names, same in groupby(entries, lambda entry: tuple(entry[1])):
            arguments: list[str | int] = [len(names), *names]
            for stream_id, fields in same:
                arguments.append(stream_id)
                arguments += fields.values()
            length = int(await self._connection.run(RESTORE_ANSWERS, (stream,), arguments))
        return length

    async def write_people(
        self, experiment: str, people: Iterable[tuple[str, Mapping[str, str], Sequence[str]]]
    ) -> None:
        """Write participants: (id, fields, queries seen) of each."""
        keys = Keys(experiment)
        await self._connection.together(
            lambda pipeline: [
                command
                for participant, fields, asked in people
                for command in (
                    pipeline.hset(keys.participant(participant), mapping=cast("Any", dict(fields))),
                    *(
                        pipeline.sadd(keys.asked(participant), *asked[start : start + _QUERIES])
                        for start in range(0, len(asked), _QUERIES)
                    ),
                )
            ]
        )

    async def write_hash(self, experiment: str, name: str, fields: Mapping[str, str | int]) -> None:
        """Write fields of `arrivals`, `counts` or `spec`; a field that exists stays as it is."""
        keys = Keys(experiment)
        key = {"arrivals": keys.arrivals, "counts": keys.counts, "spec": keys.spec}[name]
        await self._connection.together(
            lambda pipeline: [pipeline.hsetnx(key, field, cast("Any", value)) for field, value in fields.items()]
        )

    async def append(self, experiment: str, name: str, entries: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Append entries of `events` or `changes` at their own places, except those that were appended before."""
        keys = Keys(experiment)
        key = {"events": keys.events, "changes": keys.changes}[name]
        newest = await self._connection.do(lambda client: client.xrevrange(key, count=1))
        last = place_of(newest[0][0]) if newest else (0, 0)
        fresh = [(stream_id, fields) for stream_id, fields in entries if place_of(stream_id) > last]
        await self._connection.together(
            lambda pipeline: [
                pipeline.xadd(key, cast("Any", dict(fields)), id=stream_id) for stream_id, fields in fresh
            ]
        )

    async def write_model(self, experiment: str, sampler: str, fields: Mapping[str, str | bytes]) -> None:
        """Write a sampler's model, where the learning process finds it until it publishes its own."""
        await self._connection.do_binary(
            lambda client: client.hset(Keys(experiment).restored(sampler), mapping=cast("Any", dict(fields)))
        )

    async def append_generation(
        self, experiment: str, sampler: str, stream_id: str, fields: Mapping[str, str | bytes]
    ) -> None:
        """Append a generation to a sampler's history, unless it was appended before."""
        key = Keys(experiment).restored_history(sampler)
        newest = await self._connection.do_binary(lambda client: client.xrevrange(key, count=1))
        if not newest or place_of(stream_id) > place_of(newest[0][0].decode()):
            await self._connection.do_binary(lambda client: client.xadd(key, cast("Any", dict(fields)), id=stream_id))

    async def reveal(self, experiment: str, slug: str, state: Mapping[str, str | int]) -> None:
        """Give the experiment its name and its state: from now on it can be found.

        The name is taken first and in a command of its own, so two experiments never share it. A crash in between
        leaves a name without an experiment, which the next one takes over.
        """
        if not await self._connection.do(lambda client: client.hsetnx(EXPERIMENTS, slug, experiment)):
            holder = str(await self._connection.do(lambda client: client.hget(EXPERIMENTS, slug)))
            if await self._connection.do(lambda client: client.exists(Keys(holder).state)):
                raise ConflictError(
                    f"There is an experiment called {slug!r} already.", hint="Import it under another name."
                )
            await self._connection.do(lambda client: client.hset(EXPERIMENTS, slug, experiment))
        await self._connection.do(
            lambda client: client.hset(Keys(experiment).state, mapping=cast("Any", {**state, "slug": slug}))
        )

    async def check(self, experiment: str, count: int) -> None:
        """Raise StoreError unless the log has exactly so many answers."""
        length = int(await self._connection.do(lambda client: client.xlen(Keys(experiment).answers)))
        if length != count:
            raise StoreError(
                f"The log has {length} answers and the bundle {count}.", hint="Nothing is visible yet; import it again."
            )
