"""Lua scripts of the web process. Each runs as a whole or not at all, and is preceded by what it guarantees.

They reach only keys of one experiment, or only those of accounts, so one node of a Redis Cluster can run them.
"""

from functools import lru_cache

from frontend.store.places import with_places

#: Begins one of a participant's turns, or finds it again: a number that is asked for twice is the same turn, so a reply
#: that was lost costs nothing. Its position in the experiment's order is decided here once.
#:
#: `given` has an entry for each turn that is open: its position until a query is chosen, then the query too. A number
#: that was passed over has the entry '?', because a page may still ask for it. A turn that ends gets the entry '',
#: which the next call removes, so the hash stays small however long one turn stays open. A number up to `top` without
#: an entry is over. (The number 0 is no turn: it keeps the hash of a try-out from vanishing.)
#:
#: 1. With number 0 the next turn begins, unless a query that must not be passed over is still to be answered.
#: 2. The trials do not end before such a query, or one that is not chosen yet, was answered: if they would end first,
#:    no turn begins, and the turn of that query is returned, or 'none' if a spare one was asked for.
#: 3. If a session is expected, nothing happens unless it is the newest of an active participant, and the experiment is
#:    in the state that is expected.
#:
#: Returns nothing if the experiment was deleted or the participant erased, otherwise {number, what happened, entry of
#: `given`, answers, status}.
#: KEYS participant, given, state · ARGV number, 1 if spare, now (ms), most open turns, answers with which trials end
#: (0: they do not), the last position in the order that is listed for everybody, session, '*' for any, or '', state as
#: state|revision|reason of its end, numbers that are over
BEGIN_TURN = """
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('EXISTS', KEYS[3]) == 0 then return false end
local values = redis.call('HMGET', KEYS[1], 'turns', 'spares', 'top', 'settled', 'answers', 'status', 'session')
if ARGV[7] ~= '' then
  local state = redis.call('HMGET', KEYS[3], 'state', 'revision', 'ended_by')
  local same = (state[1] or '') .. '|' .. (state[2] or '') .. '|' .. (state[3] or '') == ARGV[8]
  if not same or values[6] ~= 'active' or (values[7] ~= ARGV[7] and ARGV[7] ~= '*') then return {0, 'changed', '', '0', ''} end
end
local turns, spares = tonumber(values[1] or '0'), tonumber(values[2] or '0')
local top = tonumber(values[3] or turns)
if values[4] then
  -- Earlier versions noted up to which number all turns are over, and kept no entry for a number that was passed over.
  for known = tonumber(values[4]) + 1, top do
    if redis.call('HEXISTS', KEYS[2], known) == 0 then redis.call('HSET', KEYS[2], known, '?') end
  end
  redis.call('HDEL', KEYS[1], 'settled')
end
for i = 9, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
local open, kept = {}, 0
local entries = redis.call('HGETALL', KEYS[2])
for i = 1, #entries, 2 do
  local known = tonumber(entries[i])
  if entries[i + 1] == '' and known > 0 then
    redis.call('HDEL', KEYS[2], known)
  elseif known > 0 then
    open[known], kept = entries[i + 1], kept + 1
  end
end
local number = tonumber(ARGV[1])
if number == 0 then
  number = top + 1
  for known, entry in pairs(open) do
    local began = string.match(entry, '^|%d+|%d+|%d|(%d+)$')
    local wanted = string.sub(entry, 1, 1) == 'L' or began and tonumber(ARGV[3]) - tonumber(began) > 2000
    if wanted and known < number then number = known end
  end
end
local function told(what, entry)
  return {number, what, entry, values[5] or '0', values[6] or ''}
end
local over = number <= top and not open[number]
local entry = open[number] ~= '?' and open[number]
local answers, limit = tonumber(values[5] or '0'), tonumber(ARGV[5])
local due, due_entry
if limit > 0 and (not entry or answers >= limit) then
  local begun = 0
  for known, given in pairs(open) do
    if given ~= '?' then
      begun = begun + 1
      local kind, position, spare = string.match(given, '^(%u?)|(%d+)|%d+|(%d)')
      if kind ~= 'G' and spare == '0' and tonumber(position) <= limit and due ~= number and (known == number or known < (due or math.huge)) then
        due, due_entry = known, given
      end
    end
  end
  if answers >= limit and not due and turns - spares >= tonumber(ARGV[6]) then return told('ended', '') end
  if answers + begun + (entry and 0 or 1) <= limit then due = nil end
end
if over then return told('over', '') end
if not entry and number > top + 8 then return told('early', '') end
if due and ARGV[2] == '1' then return told('none', '') end
if due then
  number, entry = due, due_entry
elseif not entry then
  local passed = math.max(0, number - top - 1)
  if kept + passed >= tonumber(ARGV[4]) then return told('full', '') end
  for known = top + 1, number - 1 do redis.call('HSET', KEYS[2], known, '?') end
  turns, spares = turns + 1, spares + tonumber(ARGV[2])
  entry = table.concat({'', turns - spares, redis.call('HGET', KEYS[3], 'revision') or '0', ARGV[2], ARGV[3]}, '|')
  redis.call('HSET', KEYS[2], number, entry)
  redis.call('HSET', KEYS[1], 'turns', turns, 'spares', spares, 'top', math.max(top, number))
end
return told('begun', entry)
"""

#: Saves the next version of a draft if `known` is the newest one, so nobody overwrites what they have not seen.
#: Versions that one window saves within minutes are one; the oldest are dropped. Returns {1, or 0 if not, number}.
#: KEYS draft · ARGV known, version (JSON), window, now (ms), minutes of one version (ms), most versions, seconds it is
#: kept
SAVE_DRAFT = """
local head, window, began, first = unpack(redis.call('HMGET', KEYS[1], 'head', 'window', 'began', 'first'))
head, first = tonumber(head or '0'), tonumber(first or '1')
if tonumber(ARGV[1]) ~= head then return {0, head} end
local number = head + 1
if window == ARGV[3] and tonumber(ARGV[4]) - tonumber(began) < tonumber(ARGV[5]) then
  redis.call('HDEL', KEYS[1], 'v' .. head)
else
  began = ARGV[4]
end
redis.call('HSET', KEYS[1], 'v' .. number, ARGV[2], 'head', number, 'window', ARGV[3], 'began', began)
while redis.call('HLEN', KEYS[1]) > tonumber(ARGV[6]) + 4 do
  redis.call('HDEL', KEYS[1], 'v' .. first)
  first = first + 1
end
redis.call('HSET', KEYS[1], 'first', first)
redis.call('EXPIRE', KEYS[1], ARGV[7])
return {1, number}
"""

#: Takes the best query this participant has not seen, with another head than their last where there is one. It leaves
#: the list, counts as seen, is pending and belongs to the turn, all at once: two participants never take the same
#: element, and a query whose participant disappears is known to the backend. Returns the entry of the turn, which is an
#: earlier one where the turn had a query already, nothing when the list holds none for them or the turn is over, 'gone'
#: if they are.
#: KEYS queries, asked, pending, participant, given · ARGV token, now (ms), most elements looked at, number of the turn,
#: beginning of its entry
TAKE_QUERY = """
if redis.call('EXISTS', KEYS[4]) == 0 then return 'gone' end
local entry = redis.call('HGET', KEYS[5], ARGV[4])
if not entry or entry == '' then return false end
if string.sub(entry, 1, 1) ~= '|' then return entry end
local function take(element, key)
  redis.call('LREM', KEYS[1], 1, element)
  redis.call('SADD', KEYS[2], key)
  redis.call('HSET', KEYS[3], ARGV[1], key .. '|' .. ARGV[2])
  redis.call('HSET', KEYS[4], 'last_head', string.match(key, '^%d+'))
  redis.call('HSET', KEYS[5], ARGV[4], ARGV[5] .. element)
  return ARGV[5] .. element
end
local last_head = redis.call('HGET', KEYS[4], 'last_head')
local second, second_key
local from, most, step = 0, tonumber(ARGV[3]), 64
while from < most do
  local elements = redis.call('LRANGE', KEYS[1], from, from + step - 1)
  for _, element in ipairs(elements) do
    local key = string.match(element, '^[^|]+')
    if redis.call('SISMEMBER', KEYS[2], key) == 0 then
      if string.match(key, '^%d+') ~= last_head then
        return take(element, key)
      end
      if not second then second, second_key = element, key end
    end
  end
  if #elements < step then break end
  from = from + step
end
if second then return take(second, second_key) end
return false
"""

#: Chooses the first of several candidates that this participant has not seen; the first of all when they have seen
#: each, or none where only an unseen one is wanted. It counts as seen, belongs to the turn, and is pending where a
#: learner should know of it. Returns the entry of the turn, which is an earlier one if the turn had a query already,
#: nothing if none was chosen or the turn is over, or 'gone' if there is no such participant any more.
#: KEYS asked, participant, state, given[, pending] · ARGV token, now (ms), name of a counter or '', number of the turn,
#: beginning of its entry, 1 if only an unseen one is wanted, then the candidates as elements of a list
REMEMBER_QUERY = """
if redis.call('EXISTS', KEYS[2]) == 0 or redis.call('EXISTS', KEYS[3]) == 0 then return 'gone' end
local entry = redis.call('HGET', KEYS[4], ARGV[4])
if not entry or entry == '' then return false end
if string.sub(entry, 1, 1) ~= '|' then return entry end
local function key_of(element) return string.match(element, '^[^|]+') end
local chosen = ARGV[6] == '0' and ARGV[7]
for i = 7, #ARGV do
  if redis.call('SISMEMBER', KEYS[1], key_of(ARGV[i])) == 0 then chosen = ARGV[i] break end
end
if not chosen then return false end
local key = key_of(chosen)
redis.call('SADD', KEYS[1], key)
redis.call('HSET', KEYS[2], 'last_head', string.match(key, '^%d+'))
redis.call('HSET', KEYS[4], ARGV[4], ARGV[5] .. chosen)
if ARGV[3] ~= '' then redis.call('HINCRBY', KEYS[3], ARGV[3], 1) end
if KEYS[5] then redis.call('HSET', KEYS[5], ARGV[1], key .. '|' .. ARGV[2]) end
return ARGV[5] .. chosen
"""


@lru_cache
def begin_and_choose(begin: str, choose: str) -> str:
    """Return the script that begins a turn and gives it a query at once, if it is the turn that was foreseen.

    `begin` is BEGIN_TURN, and `choose` is TAKE_QUERY or REMEMBER_QUERY. It returns what BEGIN_TURN does. KEYS those of
    both · ARGV number of the first script's arguments, place in the order and revision that were foreseen, then the
    arguments of both
    """
    return f"""
local function begin(KEYS, ARGV) {begin} end
local function choose(KEYS, ARGV) {choose} end
local last = tonumber(ARGV[1]) + 3
local turn = begin({{KEYS[1], KEYS[2], KEYS[3]}}, {{unpack(ARGV, 4, last)}})
if turn and turn[2] == 'begun' and string.find(turn[3], '|' .. ARGV[2] .. '|' .. ARGV[3] .. '|0|', 1, true) == 1 then
  turn[3] = choose({{unpack(KEYS, 4)}}, {{unpack(ARGV, last + 1)}}) or turn[3]
end
return turn
"""


#: Counts the places from the statuses of all participants where nobody has counted them yet: after an import, or an
#: update from a version that did not. Returns the hash of places; nothing where the experiment was deleted. KEYS
#: arrivals, state, hash of some participant's id, places · ARGV that id
COUNT_PLACES = with_places("""
if redis.call('EXISTS', KEYS[2]) == 0 then return {} end
count_places(KEYS[4], KEYS[1], string.sub(KEYS[3], 1, -#ARGV[1] - 1))
return redis.call('HGETALL', KEYS[4])
""")

#: Finds the participant of an identity; the first arrival makes them, with the fields given and how many arrived
#: before, if there is a place for them. A field that is there stays as it is. Whoever was away for too long takes a
#: place again where they come back: if they have answered something, even where none is left. Somebody who begins anew
#: is another participant under the same identity: the earlier one is replaced, or keeps a field of their own
#: (identity#participant) where their part has ended; then the queries that they saw count as seen. Returns
#: {participant's id, names and values of their fields}, 'full' where no place is left, or nothing where the experiment
#: was deleted.
#: KEYS arrivals, state, hash of the id that a new participant would get, places · ARGV identity, that id, the
#: participant who begins anew, or '+' where somebody comes back, or '', their group or '', most places (0: any number),
#: number of groups with places g, name and number of places of each, then names and values
ARRIVE = with_places("""
if redis.call('EXISTS', KEYS[2]) == 0 then return false end
local base = string.sub(KEYS[3], 1, -#ARGV[2] - 1)
count_places(KEYS[4], KEYS[1], base)
local fields = 7 + 2 * tonumber(ARGV[6])
-- Returns the group in which a place is free, '' where it does not matter, or false; of several groups, the one with the
-- largest share of free places.
local function free_place(wanted)
  local most = tonumber(ARGV[5])
  if most > 0 and tonumber(redis.call('HGET', KEYS[4], 'held')) >= most then return false end
  local group, share = fields == 7 and wanted, 0
  for i = 7, fields - 1, 2 do
    local held = tonumber(redis.call('HGET', KEYS[4], 'held:' .. ARGV[i]) or '0')
    local free = 1 - held / tonumber(ARGV[i + 1])
    if free > share and (wanted == '' or wanted == ARGV[i]) then group, share = ARGV[i], free end
  end
  return group
end
local present = redis.call('HGET', KEYS[1], ARGV[1])
local group = ''
if not present then
  group = free_place(ARGV[4])
  if not group then return 'full' end
elseif present == ARGV[3] then
  local earlier = base .. present
  if redis.call('EXISTS', earlier) == 0 then return false end
  local status = redis.call('HGET', earlier, 'status') or 'arrived'
  group = ARGV[4]
  if is_one_of(away, status) or not is_one_of(before_replaced, status) then
    group = free_place(group)
    if not group then return 'full' end
  end
  redis.call('HDEL', KEYS[1], ARGV[1])
  if change(earlier, KEYS[4], present, 'replaced', before_replaced) ~= 'replaced' then
    redis.call('HSET', KEYS[1], ARGV[1] .. '#' .. present, present)
    for _, query in ipairs(redis.call('SMEMBERS', earlier .. ':asked')) do
      redis.call('SADD', KEYS[3] .. ':asked', query)
    end
  end
elseif ARGV[3] == '+' then
  local values = redis.call('HMGET', base .. present, 'status', 'group', 'answers')
  if values[1] == 'abandoned' then
    local began = tonumber(values[3] or '0') > 0
    if not began and not free_place(values[2] or '') then return 'full' end
    change(base .. present, KEYS[4], present, began and 'active' or 'arrived', ' abandoned ')
  end
end
local first = redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
local known = redis.call('HGET', KEYS[1], ARGV[1])
local key = base .. known
if first == 1 then
  redis.call('HSETNX', key, 'place', redis.call('HLEN', KEYS[1]) - 1)
  if group ~= '' then redis.call('HSETNX', key, 'group', group) end
end
for i = fields, #ARGV, 2 do redis.call('HSETNX', key, ARGV[i], ARGV[i + 1]) end
if first == 1 then
  local values = redis.call('HMGET', key, 'status', 'group')
  move(KEYS[4], known, '', values[1], '', values[2] or '')
end
return {known, redis.call('HGETALL', key)}
""")

#: Sets fields of a participant and, where it may follow the one at this moment, a status; the places move with it. What
#: a platform said before what is known is passed over. Returns {status afterwards, 1 if anything was written}, or
#: nothing where there is no such participant.
#: KEYS participant[, places] · ARGV wanted status or '', statuses that it may follow, participant, when the platform
#: said it (ms) or '', then names and values
CHANGE_STATUS = with_places("""
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if ARGV[4] ~= '' and tonumber(redis.call('HGET', KEYS[1], 'platform_ms') or '-1') > tonumber(ARGV[4]) then
  return {redis.call('HGET', KEYS[1], 'status') or 'arrived', 0}
end
return {change(KEYS[1], KEYS[2], ARGV[3], ARGV[1], ARGV[2], unpack(ARGV, 5)), 1}
""")

#: Runs commands together where certain keys are there: the state of an experiment that is not deleted, the hash of a
#: participant who is not erased. Elsewhere it does nothing, so that no request that was under way brings back what was
#: removed. Returns the replies of the commands, or nothing.
#: KEYS those that must be there, then the key of each command · ARGV how many must be there, then for each command the
#: number of its parts, its name, and its arguments without the key
CHANGE_WHERE_KNOWN = """
local known, at = tonumber(ARGV[1]), 2
for i = 1, known do
  if redis.call('EXISTS', KEYS[i]) == 0 then return false end
end
local replies = {}
for i = 1, #KEYS - known do
  local last = at + tonumber(ARGV[at])
  replies[i] = redis.call(ARGV[at + 1], KEYS[known + i], unpack(ARGV, at + 2, last))
  at = last + 1
end
return replies
"""

#: Notes that somebody has finished, and counts them once: the counter always agrees with the participants. Returns how
#: many have finished and hold a place, or nothing where there is no such participant any more.
#: KEYS participant, counts, places · ARGV now (ms), counter, statuses from which there is no way on, participant, then
#: names and values
COMPLETE = with_places("""
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if redis.call('HSETNX', KEYS[1], 'completed_ms', ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[2], ARGV[2], 1)
end
local status = redis.call('HGET', KEYS[1], 'status') or 'arrived'
local may_follow = is_one_of(ARGV[3], status) and '' or ' ' .. status .. ' '
change(KEYS[1], KEYS[3], ARGV[4], 'completed', may_follow, unpack(ARGV, 5))
return tonumber(redis.call('HGET', KEYS[3], 'finished') or '0')
""")

#: Claims the asking for a participant's credit: one caller gets 1, and another only where nothing came of it for a
#: while. A credit that was granted or refused is never asked for again.
#: KEYS participant · ARGV now (ms), after how many milliseconds a claim is void
CLAIM_CREDIT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local credit, at = unpack(redis.call('HMGET', KEYS[1], 'credit', 'credit_ms'))
if credit and (credit ~= 'asked' or tonumber(ARGV[1]) < tonumber(at) + tonumber(ARGV[2])) then return 0 end
redis.call('HSET', KEYS[1], 'credit', 'asked', 'credit_ms', ARGV[1])
return 1
"""

#: Closes or pauses an open experiment, with the reason, and notes it among its changes. Returns 1 if it did.
#: KEYS state, changes · ARGV state, reason, now (ms), by whom, what, detail
END_RUN = """
if redis.call('HGET', KEYS[1], 'state') ~= 'open' then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'ended_by', ARGV[2], 'since_ms', ARGV[3])
redis.call('XADD', KEYS[2], '*', 'at_ms', ARGV[3], 'by', ARGV[4], 'what', ARGV[5], 'detail', ARGV[6])
return 1
"""

#: Asks a job to stop: one that waits is cancelled at once, one that runs is told, and one that has ended stays as it
#: is, whoever ended it a moment before. Returns its state, or nothing where it has expired.
#: KEYS request · ARGV seconds to live
CANCEL_REQUEST = """
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'waiting' and state ~= 'running' then return state end
redis.call('HSET', KEYS[1], 'cancel', '1')
if state == 'waiting' then redis.call('HSET', KEYS[1], 'state', 'cancelled') end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return redis.call('HGET', KEYS[1], 'state')
"""

#: Lets so many through from one address, and then a few every second: the time at which the address will have used up
#: nothing moves on with each. It is never further away than all that may come at once; where it seems to be, a clock
#: was set back, and the address begins anew. Returns 0, or how many milliseconds to wait.
#: KEYS arrivals of the address · ARGV now (ms), milliseconds that each costs, how many may come at once
ADMIT = """
local now, cost, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[2]) * tonumber(ARGV[3])
local known = tonumber(redis.call('GET', KEYS[1]) or '0')
if known > now + most then known = now end
local free = math.max(now, known) + cost
local wait = free - now - most
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], free, 'PX', math.ceil(free - now))
return 0
"""

#: A token's answer is in the stream once, however often it is sent: the second time the first result comes back. The
#: answer, the note of its token, the end of its turn, the end of being pending and the counters move together. A turn
#: for which the store knows no query is over too: it was too slow to note the one that was answered. Returns {stream
#: id, 1 if recorded now and 0 if before, answers of this participant, all answers}, or nothing where either is gone.
#: KEYS answers, answered, pending, participant, state, counts, given, erased · ARGV token, now (ms), sampler, counter
#: of first answers, number of the turn, number of other counters c, participant, their c names, then the fields of the
#: answer
RECORD_ANSWER = """
if redis.call('EXISTS', KEYS[5]) == 0 then return false end
if redis.call('SISMEMBER', KEYS[8], redis.sha1hex(ARGV[7])) == 1 then return false end
local before = redis.call('HGET', KEYS[2], ARGV[1])
if before then
  local all = redis.call('HGET', KEYS[5], 'answers') or '0'
  return {before, 0, tonumber(redis.call('HGET', KEYS[4], 'answers') or '0'), tonumber(all)}
end
local fields = 8 + tonumber(ARGV[6])
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, fields))
redis.call('HSET', KEYS[2], ARGV[1], id)
redis.call('HDEL', KEYS[3], ARGV[1])
local entry = redis.call('HGET', KEYS[7], ARGV[5])
if entry and (string.match(entry, '^|') or string.find(entry, '|' .. ARGV[1] .. '|', 1, true)) then
  redis.call('HSET', KEYS[7], ARGV[5], '')
end
redis.call('HSET', KEYS[4], 'last_ms', ARGV[2])
local all = redis.call('HINCRBY', KEYS[5], 'answers', 1)
redis.call('HINCRBY', KEYS[5], 'answers:' .. ARGV[3], 1)
for i = 8, fields - 1 do redis.call('HINCRBY', KEYS[6], ARGV[i], 1) end
local given = redis.call('HINCRBY', KEYS[4], 'answers', 1)
if given == 1 then redis.call('HINCRBY', KEYS[6], ARGV[4], 1) end
return {id, 1, given, all}
"""


def _with_accounts(script: str) -> str:
    """Return a script that changes accounts; its first keys are the accounts, the sessions and when they were used."""
    return f"""
local function end_all(key, account)
  local kept = redis.call('HGETALL', key)
  for i = 1, #kept, 2 do
    if cjson.decode(kept[i + 1]).account == account then
      redis.call('HDEL', key, kept[i])
      redis.call('HDEL', KEYS[3], kept[i])
    end
  end
end
local function remove_recovery_codes(key, account)
  local kept = redis.call('HGETALL', key)
  for i = 1, #kept, 2 do
    if string.sub(kept[i], 1, #account + 1) == account .. ':' then redis.call('HDEL', key, kept[i]) end
  end
end
local function is_only_owner(account)
  if account.role ~= 'owner' then return false end
  local kept = redis.call('HGETALL', KEYS[1])
  for i = 1, #kept, 2 do
    if string.sub(kept[i], 1, 1) ~= '@' and kept[i] ~= account.name and cjson.decode(kept[i + 1]).role == 'owner' then
      return false
    end
  end
  return true
end
-- Returns the account of a name if it has this id. Those of earlier versions have none stored, and no account is made
-- without one any more: it is the one that was meant.
local function find_account(name, id)
  local kept = redis.call('HGET', KEYS[1], name)
  local account = kept and cjson.decode(kept)
  if account and (account.id or id) == id then return account end
end
local function change_account(account, id, fields)
  for name, value in pairs(fields) do account[name] = value end
  account.id, account.version = id, (account.version or 0) + 1
  local changed = cjson.encode(account)
  redis.call('HSET', KEYS[1], account.name, changed)
  if fields.password_hash or fields.role then end_all(KEYS[2], id) end
  return changed
end
{script}"""


#: Compare-and-set of an account's fields: changes them if the account still has this id and, where a version is given,
#: has not been changed since that version. Another password or role ends its sessions, and another second factor
#: replaces its recovery codes, at once. Returns {'done', account}, or why not: 'gone', 'changed' or 'only_owner'.
#: KEYS accounts, sessions, last used, recovery codes, used codes · ARGV name, id, version or '' for any, JSON of the
#: fields, digests of the new recovery codes
CHANGE_ACCOUNT = _with_accounts("""
local account = find_account(ARGV[1], ARGV[2])
if not account then return {'gone', ''} end
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= (account.version or 0) then return {'changed', ''} end
local fields = cjson.decode(ARGV[4])
if fields.role and fields.role ~= 'owner' and is_only_owner(account) then return {'only_owner', ''} end
local changed = change_account(account, ARGV[2], fields)
if fields.second_factor then
  remove_recovery_codes(KEYS[4], ARGV[2])
  if fields.second_factor == '' then redis.call('HDEL', KEYS[5], ARGV[2]) end
  for i = 5, #ARGV do redis.call('HSET', KEYS[4], ARGV[2] .. ':' .. ARGV[i], '1') end
end
return {'done', changed}
""")

#: Removes an account of this id with everything that gives access by it. Returns 'done', 'gone' or 'only_owner'.
#: KEYS accounts, sessions, last used, API tokens, invitations, recovery codes, used codes, then those of its draft
#: ARGV name, id
REMOVE_ACCOUNT = _with_accounts("""
local account = find_account(ARGV[1], ARGV[2])
if not account then return 'gone' end
if is_only_owner(account) then return 'only_owner' end
end_all(KEYS[2], ARGV[2])
end_all(KEYS[4], ARGV[2])
local links = redis.call('HGETALL', KEYS[5])
for i = 1, #links, 2 do
  if cjson.decode(links[i + 1]).name == ARGV[1] then redis.call('HDEL', KEYS[5], links[i]) end
end
remove_recovery_codes(KEYS[6], ARGV[2])
redis.call('HDEL', KEYS[7], ARGV[2])
for i = 8, #KEYS do redis.call('DEL', KEYS[i]) end
redis.call('HDEL', KEYS[1], ARGV[1])
return 'done'
""")

#: Takes an invitation up: the account is made, or gets its new password, and the invitation is used, both or neither,
#: so that of two who open the same link one succeeds. A reset changes the password alone, and ends the sessions.
#: Returns 'done', or why not: 'unknown', 'used', 'old', 'taken' (there is such an account, or for the owner's link any)
#: or 'gone' (the account whose password was to be reset).
#: KEYS accounts, sessions, last used, invitations · ARGV digest, now (ms), name, account as JSON, field of the owner's
#: claim
TAKE_UP_INVITATION = _with_accounts("""
local kept = redis.call('HGET', KEYS[4], ARGV[1])
if not kept then return 'unknown' end
local invitation = cjson.decode(kept)
if invitation.used_ms > 0 then return 'used' end
if tonumber(ARGV[2]) > invitation.ends_ms then return 'old' end
if invitation.purpose == 'reset' then
  local account = find_account(ARGV[3], invitation.account)
  if not account then return 'gone' end
  change_account(account, invitation.account, {password_hash = cjson.decode(ARGV[4]).password_hash})
elseif redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then
  return 'taken'
else
  if invitation.purpose == 'first' then
    if redis.call('HLEN', KEYS[1]) > redis.call('HEXISTS', KEYS[1], ARGV[5]) then return 'taken' end
    redis.call('HSET', KEYS[1], ARGV[5], ARGV[3])
  end
  redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
end
invitation.used_ms = tonumber(ARGV[2])
redis.call('HSET', KEYS[4], ARGV[1], cjson.encode(invitation))
return 'done'
""")

#: Finds what a cookie or an API token stands for, with its account, and notes that it was used, at most once a minute.
#: What has ended, or was idle for too long, is removed. Returns {what was kept, account}, or nothing.
#: KEYS sessions or API tokens, last used, accounts · ARGV digest, now (ms), most idle time (ms; 0 for no limit)
FIND_SESSION = """
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if not kept then return false end
local session = cjson.decode(kept)
local now, idle = tonumber(ARGV[2]), tonumber(ARGV[3])
local used = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or session.created_ms)
if (session.ends_ms > 0 and now > session.ends_ms) or (idle > 0 and now - used > idle) then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  return false
end
if now - used >= 60000 or used == session.created_ms then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
return {kept, redis.call('HGET', KEYS[3], session.name)}
"""

#: Reserves a place for one guess before it is checked, so that guesses at the same moment count each other. Nothing is
#: reserved while one of the counters is waiting, nor where only the wait is asked for. A counter whose free places are
#: gone waits twice as long after each further guess; a name that is guessed from many places gives each new place
#: fewer. Returns {account or false, time to wait (ms)}.
#: KEYS accounts, the name's counter, the counter of name and place[, the place's counter] ARGV account's name, now
#: (ms), 1 to reserve, free places of name and place, the same while the name is attacked, guesses that make an attack,
#: free places of the place, longest wait (ms), time until counters are forgotten (s)
RESERVE_GUESS = """
local account = redis.call('HGET', KEYS[1], ARGV[1])
local now, wait = tonumber(ARGV[2]), 0
for i = 3, #KEYS do
  wait = math.max(wait, tonumber(redis.call('HGET', KEYS[i], 'until') or '0') - now)
end
if wait > 0 or ARGV[3] == '0' then return {account, wait} end
local free = {tonumber(ARGV[4]), tonumber(ARGV[7])}
if #KEYS == 4 then
  if redis.call('HINCRBY', KEYS[2], 'count', 1) > tonumber(ARGV[6]) then free[1] = tonumber(ARGV[5]) end
  redis.call('EXPIRE', KEYS[2], ARGV[9])
end
for i = 3, #KEYS do
  local over = redis.call('HINCRBY', KEYS[i], 'count', 1) - free[i - 2]
  if over >= 0 then
    local delay = math.min(tonumber(ARGV[8]), 2 ^ math.min(over + 1, 30) * 1000)
    redis.call('HSET', KEYS[i], 'until', string.format('%.0f', now + delay), 'free', free[i - 2])
  else
    redis.call('HSET', KEYS[i], 'free', free[i - 2])
  end
  redis.call('EXPIRE', KEYS[i], ARGV[9])
end
return {account, 0}
"""

#: Gives back the place of a guess that was right: the counter of its name and place begins again, the others forget it.
#: KEYS the name's counter, the counter of name and place[, the place's counter]
RELEASE_GUESS = """
redis.call('DEL', KEYS[2])
if KEYS[3] then
  for _, key in ipairs({KEYS[1], KEYS[3]}) do
    if redis.call('EXISTS', key) == 1 then
      local left = redis.call('HINCRBY', key, 'count', -1)
      if left < tonumber(redis.call('HGET', key, 'free') or '0') then redis.call('HDEL', key, 'until') end
    end
  end
end
return 1
"""

#: Notes that the one-time code of a moment was used. Returns 1, or 0 where it or a later one was used before.
#: KEYS used codes · ARGV account's id, number of the code's moment
USE_CODE = """
if tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '-1') >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
"""

#: Removes a participant and what was kept of their turns; somebody anonymous who has the same status takes their place
#: where the answers stay, so that counts of people agree. Without the answers, the count of those who completed is
#: lowered. From now on nothing that their pages send is recorded. Returns whether there was anything.
#: KEYS participant, asked, answered, given, arrivals, counts, erased, places[, anonymous participant] · ARGV
#: participant, milliseconds in a minute, number of identities i, their i names, then names and values of the anonymous
#: participant, the first of which is the identity
ERASE_PARTICIPANT = with_places("""
redis.call('SADD', KEYS[7], redis.sha1hex(ARGV[1]))
local completed = redis.call('HGET', KEYS[1], 'completed_ms')
local known = redis.call('EXISTS', KEYS[1]) == 1
local after = 4 + tonumber(ARGV[3])
if known then
  local values = redis.call('HMGET', KEYS[1], 'status', 'group')
  local status, group = values[1] or 'arrived', values[2] or ''
  move(KEYS[8], ARGV[1], status, '', group, group)
  if KEYS[9] then move(KEYS[8], string.match(KEYS[9], '[^:]+$'), '', status, group, group) end
end
if known and KEYS[9] then
  if after > 4 then redis.call('HSET', KEYS[5], ARGV[after], string.match(KEYS[9], '[^:]+$')) end
  redis.call('HSET', KEYS[9], unpack(ARGV, after + 1))
elseif known and completed and tonumber(completed) > 0 then
  local counter = 'completed:' .. math.floor(tonumber(completed) / tonumber(ARGV[2]))
  if redis.call('HINCRBY', KEYS[6], counter, -1) <= 0 then redis.call('HDEL', KEYS[6], counter) end
end
for i = 4, after - 1 do redis.call('HDEL', KEYS[5], ARGV[i]) end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return known and 1 or 0
""")

#: Removes one answer and takes it out of all counters, unless it was removed before. Returns 1 if it was removed now.
#: KEYS answers, state, counts · ARGV stream id, sampler, then the counters
ERASE_ANSWER = """
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HINCRBY', KEYS[2], 'answers', -1)
redis.call('HINCRBY', KEYS[2], 'answers:' .. ARGV[2], -1)
for i = 3, #ARGV do
  if redis.call('HINCRBY', KEYS[3], ARGV[i], -1) <= 0 then redis.call('HDEL', KEYS[3], ARGV[i]) end
end
return 1
"""

#: Copies a page of entries to the end of another stream, under the same ids. Some get other fields.
#: KEYS stream, copy · ARGV first id, last id, JSON of the ids of those → their fields [name, value, name, value, …]
COPY_ENTRIES = """
local changed = cjson.decode(ARGV[3])
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2])) do
  redis.call('XADD', KEYS[2], entry[1], unpack(changed[entry[1]] or entry[2]))
end
"""

#: Copies the entries after an id, and lets the copy take the place of the stream; what is appended next gets a later id
#: than anything before, as in the old stream.
#: KEYS stream, copy · ARGV last id that was copied, with ( before it
REPLACE_STREAM = """
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+')) do
  redis.call('XADD', KEYS[2], entry[1], unpack(entry[2]))
end
local about, last = redis.call('XINFO', 'STREAM', KEYS[1]), nil
for i = 1, #about, 2 do
  if about[i] == 'last-generated-id' then last = about[i + 1] end
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('XADD', KEYS[2], last, 'gone', '')
  redis.call('XDEL', KEYS[2], last)
end
redis.call('XSETID', KEYS[2], last)
redis.call('RENAME', KEYS[2], KEYS[1])
"""

#: Keeps a payment before anything of it is sent: once for its key, only if none of its submissions was paid, and only
#: if the counter stays within its bound. Returns nothing where the experiment was deleted, otherwise {outcome, kept}.
#: KEYS prolific, state · ARGV field of the payment, its JSON, counter, more, most, then marks and their values
CLAIM_PAYMENT = """
if redis.call('EXISTS', KEYS[2]) == 0 then return false end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return {'known', known} end
for i = 6, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then return {'marked', ''} end
end
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[3]) or '0')
if count + tonumber(ARGV[4]) > tonumber(ARGV[5]) then return {'limit', ''} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[1], ARGV[3], ARGV[4])
for i = 6, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return {'claimed', ''}
"""

#: Changes a payment if it is as it was read, and gives back its marks and part of the counter where it was refused.
#: KEYS prolific · ARGV field of the payment, JSON before, JSON after, counter or '', less, marks
SETTLE_PAYMENT = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then redis.call('HINCRBY', KEYS[1], ARGV[4], -tonumber(ARGV[5])) end
for i = 6, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
return 1
"""
