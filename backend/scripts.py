"""The Lua calls of the learning process. Each runs whole or not at all, and is preceded by what it guarantees."""

#: Queries, model and a line of history are replaced together, and only by the newest backend: with an older fence
#: nothing is written and nothing is returned. There is no moment without queries. What was taken since the search
#: looked is left out of the new list, unless it is a random draw. Returns the length of the new list.
#: KEYS queries, model, history, fence, pending · ARGV fence, history kept, number of model fields f,
#: f names and values of the model, number of history fields h, h names and values of the line, then the queries
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

#: Take a request on: whoever finds it waiting, or left running by another backend, is the only one that may write about
#: it from then on. A request that was cancelled, or that too many backends have begun and not ended, ends here.
#: Returns the state that it is in now.
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

#: Write about a request that this backend has taken on. Nothing is written where another backend has it by now, where it
#: has expired, or where it was cancelled: then it ends as cancelled. Returns the state that it is in now.
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
