"""Lua scripts of the web process. Each runs as a whole or not at all, and is preceded by what it guarantees.

They reach only keys of one experiment, so one node of a Redis Cluster can run them.
"""

#: Takes the best query this participant has not seen, with another head than their last where there is one. It leaves the
#: list, counts as seen and is pending, all at once: two participants never take the same element, and a query whose
#: participant disappears is known to the backend. Returns the element, or nothing when the list holds none for them.
#: KEYS queries, asked, pending, participant · ARGV token, now (ms), last head, most elements looked at
TAKE_QUERY = """
local function take(element, key)
  redis.call('LREM', KEYS[1], 1, element)
  redis.call('SADD', KEYS[2], key)
  redis.call('HSET', KEYS[3], ARGV[1], key .. '|' .. ARGV[2])
  redis.call('HSET', KEYS[4], 'last_head', string.match(key, '^%d+'))
  return element
end
local second, second_key
local from, most, step = 0, tonumber(ARGV[4]), 64
while from < most do
  local elements = redis.call('LRANGE', KEYS[1], from, from + step - 1)
  for _, element in ipairs(elements) do
    local key = string.match(element, '^[^|]+')
    if redis.call('SISMEMBER', KEYS[2], key) == 0 then
      if string.match(key, '^%d+') ~= ARGV[3] then
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

#: Chooses the first of several candidates that this participant has not seen; the first of all when they have seen each.
#: It counts as seen, and is pending where a learner should know of it. Returns the position of the candidate, from 1.
#: KEYS asked, participant, state[, pending] · ARGV token, now (ms), name of a counter or '', then the candidates' keys
REMEMBER_QUERY = """
local chosen = 4
for i = 4, #ARGV do
  if redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 0 then chosen = i break end
end
redis.call('SADD', KEYS[1], ARGV[chosen])
redis.call('HSET', KEYS[2], 'last_head', string.match(ARGV[chosen], '^%d+'))
if ARGV[3] ~= '' then redis.call('HINCRBY', KEYS[3], ARGV[3], 1) end
if KEYS[4] then redis.call('HSET', KEYS[4], ARGV[1], ARGV[chosen] .. '|' .. ARGV[2]) end
return chosen - 3
"""

#: A token's answer is in the stream once, however often it is sent: the second time the first result comes back.
#: The answer, the note of its token, the end of being pending and the counters move together.
#: Returns {stream id, 1 if recorded now and 0 if before, answers of this participant}.
#: KEYS answers, answered, pending, participant, state, counts · ARGV token, now (ms), sampler, counter of first answers,
#: number of other counters c, their c names, then the fields of the answer
RECORD_ANSWER = """
local before = redis.call('HGET', KEYS[2], ARGV[1])
if before then
  return {before, 0, tonumber(redis.call('HGET', KEYS[4], 'answers') or '0')}
end
local fields = 6 + tonumber(ARGV[5])
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, fields))
redis.call('HSET', KEYS[2], ARGV[1], id)
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[4], 'last_ms', ARGV[2])
redis.call('HINCRBY', KEYS[5], 'answers', 1)
redis.call('HINCRBY', KEYS[5], 'answers:' .. ARGV[3], 1)
for i = 6, fields - 1 do redis.call('HINCRBY', KEYS[6], ARGV[i], 1) end
local given = redis.call('HINCRBY', KEYS[4], 'answers', 1)
if given == 1 then redis.call('HINCRBY', KEYS[6], ARGV[4], 1) end
return {id, 1, given}
"""
