"""The places of an experiment: how many there are, who holds them, and the part of scripts that counts them.

Whoever arrives holds a place until they leave. The counters move in the script that changes a status, so they always
agree with the participants.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from frontend.store.statuses import AWAY, FINISHED, Status, leading_to


@dataclass(frozen=True)
class Quota:
    """How many places an experiment has (0: any number), and each of its groups; no groups where none has a number."""

    places: int = 0
    groups: tuple[tuple[str, int], ...] = ()

    def encode(self) -> tuple[str | int, ...]:
        """Return the arguments of scripts."""
        return (self.places, len(self.groups), *(part for group in self.groups for part in group))


@dataclass(frozen=True)
class Places:
    """Who holds a place: how many participants, how many of them have finished, and the ids of those who have not.

    `groups` says how many hold a place of each group.
    """

    held: int = 0
    finished: int = 0
    under_way: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def parse(found: Mapping[str, str]) -> "Places":
        """Return the places of the hash in which they are counted."""
        return Places(
            held=int(found.get("held", 0)),
            finished=int(found.get("finished", 0)),
            under_way=tuple(sorted(name.removeprefix("at:") for name in found if name.startswith("at:"))),
            groups={name.removeprefix("held:"): int(found[name]) for name in found if name.startswith("held:")},
        )


def with_places(script: str) -> str:
    """Return a script that can change a participant's status together with the hash of places.

    `held` counts those who hold a place, `held:G` those of group G, `finished` those of them who have finished; a field
    `at:P` names each who has not. Nothing is counted until the first arrival has counted who is there.
    """
    return f"""
local away, finished, before_replaced = '{_spaced(["", *AWAY])}', '{_spaced(FINISHED)}', '{_spaced(leading_to(Status.REPLACED))}'
local function is_one_of(statuses, status) return string.find(statuses, ' ' .. status .. ' ', 1, true) ~= nil end
local function add(places, field, number)
  if number ~= 0 then redis.call('HINCRBY', places, field, number) end
end
local function move(places, participant, before, after, old_group, group)
  if redis.call('HEXISTS', places, 'held') == 0 then return end
  local held, holds = is_one_of(away, before) and 0 or 1, is_one_of(away, after) and 0 or 1
  add(places, 'held', holds - held)
  if old_group == group then
    if group ~= '' then add(places, 'held:' .. group, holds - held) end
  else
    if old_group ~= '' then add(places, 'held:' .. old_group, -held) end
    if group ~= '' then add(places, 'held:' .. group, holds) end
  end
  local done = is_one_of(finished, after)
  add(places, 'finished', (done and 1 or 0) - (is_one_of(finished, before) and 1 or 0))
  if holds == 1 and not done then
    redis.call('HSET', places, 'at:' .. participant, '')
  else
    redis.call('HDEL', places, 'at:' .. participant)
  end
end
local function count_places(places, arrivals, base)
  if redis.call('HEXISTS', places, 'held') == 1 then return end
  redis.call('HSET', places, 'held', 0)
  local known = redis.call('HGETALL', arrivals)
  for i = 2, #known, 2 do
    local values = redis.call('HMGET', base .. known[i], 'status', 'group')
    move(places, known[i], '', values[1] or 'arrived', '', values[2] or '')
  end
end
local function change(key, places, participant, wanted, may_follow, ...)
  local values = redis.call('HMGET', key, 'status', 'group')
  local before = values[1] or 'arrived'
  local after = is_one_of(may_follow, before) and wanted or before
  redis.call('HSET', key, 'status', after, ...)
  if places then
    move(places, participant, before, after, values[2] or '', redis.call('HGET', key, 'group') or '')
  end
  return after
end
{script}"""


def _spaced(statuses: Iterable[str]) -> str:
    """Return statuses with a space before and after each; the empty one stands for nobody's."""
    return f" {' '.join(sorted(statuses))} "
