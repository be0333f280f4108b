-- The operator's requests: one may be pending, its fate is kept for an hour.
--
-- KEYS  1 request  2 answer to the request in ARGV 2 (absent for next)
-- ARGV  1 action  2 request id, then by action
-- Reply: a list of strings whose first says the state of the request:
--   pending, claimed {session, owner}, answered {JSON}, withdrawn, unknown; further
--   late {id, deadline, JSON} and taken {id, at, claimed by, JSON, deadline} about the one in the way;
--   overdue is taken where it is past its deadline.

local action, id = ARGV[1], ARGV[2]

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local r = redis.call('HMGET', KEYS[1], 'id', 'data', 'deadline', 'at', 'claimed', 'session')
local pending, data, deadline, at, claimed = r[1], r[2] or '', r[3] or '0', r[4] or '0', r[5] or ''
local session = r[6] or claimed -- older bridges name the owner alone
-- No session may claim a request past its deadline. One that has claimed it may be applying it.
local overdue = pending and (tonumber(deadline) or 0) <= now
local late = overdue and claimed == ''

if action == 'next' then
  if not pending then return {'unknown'} end
  return {late and 'late' or 'pending', pending, deadline, data}
end

local fate = redis.call('HMGET', KEYS[2], 'state', 'data')
local ours = pending == id

local function settle(state, json, keep)
  redis.call('HSET', KEYS[2], 'state', state, 'data', json)
  redis.call('PEXPIRE', KEYS[2], keep)
  if ours then redis.call('DEL', KEYS[1]) end
  return {state, json}
end

if action == 'request' then -- 3 JSON, 4 time to live or 0, 5 deadline where that is 0, 6 ms to keep it afterwards
  if fate[1] then return {fate[1], fate[2]} end
  if ours then return {'pending', deadline} end
  if late then return {'late', pending, deadline, data} end
  if pending then return {overdue and 'overdue' or 'taken', pending, at, claimed, data, deadline} end
  local till = ARGV[4] == '0' and tonumber(ARGV[5]) or now + ARGV[4]
  till = string.format('%.0f', till)
  redis.call('HSET', KEYS[1], 'id', id, 'data', ARGV[3], 'at', string.format('%.0f', now), 'deadline', till)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(till - now, 0) + ARGV[6]))
  return {'pending', till}
end

-- The first outcome of a request is final.
if fate[1] then
  if ours then redis.call('DEL', KEYS[1]) end
  return {fate[1], fate[2]}
end
if action == 'answer' then return settle('answered', ARGV[3], ARGV[4]) end -- 3 JSON, 4 ms to keep
if not ours then return {'unknown'} end
-- 3 JSON, 4 ms to keep, 5 session, 6 one that is over. Others may still apply what is another session's.
if action == 'refuse' and (claimed ~= '' and session == ARGV[5] or overdue and (claimed == '' or session == ARGV[6])) then return settle('answered', ARGV[3], ARGV[4]) end
if action == 'claim' and (claimed == '' or session == ARGV[4] or session == ARGV[5]) then -- 3 owner, 4 session, 5 one that is over
  if overdue then return {'late', pending, deadline, data} end
  redis.call('HSET', KEYS[1], 'claimed', ARGV[3], 'session', ARGV[4])
  return {'claimed', ARGV[4], ARGV[3]}
end
-- Any process answers an invalid request: 3 JSON, 4 ms to keep
if action == 'drop' and (claimed == '' or overdue) then return settle('answered', ARGV[3], ARGV[4]) end
if claimed ~= '' then return {'claimed', session, claimed} end
if action == 'withdraw' then return settle('withdrawn', '', ARGV[3]) end -- 3 ms to keep
if action == 'expire' and late then return settle('answered', ARGV[3], ARGV[4]) end -- 3 JSON, 4 ms to keep
return {'pending', deadline}
