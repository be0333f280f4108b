-- Compares and sets a stream's checkpoint, and writes its history.
--
-- KEYS  1 checkpoint  2 history  3 history index
-- ARGV  1 version  2 epoch  3 seq  4 change id  5 cursor hash  6 session  7 written at
--       8 checkpoint JSON  9 change id that the writer knows  10 data, note or none
--       11 parent of the first entry of a new epoch  12 newest version that the writer reads
-- Reply {word, detail}: applied, same, conflict (detail: stored JSON) or foreign (detail: what it is).

local GROWTH, KEPT, NONE = '~', '!', '-'
local DATA_EVERY, GROWTH_EVERY = 1000, 10000 -- milliseconds

local version, epoch, seq, change, cursor = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local session, at, data, known, class, root = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]

-- Epoch and seq stay strings: as Lua numbers they would be exact to 2^53 only.
local function compare(a, b)
  if a == b then return 0 end
  if #a ~= #b then return #a < #b and -1 or 1 end
  return a < b and -1 or 1
end

local MOST = '72057594037927936' -- bridge.MaxNumber

local function number(s)
  return s and (s == '0' or string.match(s, '^[1-9]%d*$') ~= nil) and compare(s, MOST) <= 0
end

local function record(place, parent, json, written, mark)
  redis.call('HSET', KEYS[2], place, parent .. ' ' .. json)
  redis.call('ZADD', KEYS[3], written, place .. mark)
end

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then return {'foreign', 'a ' .. kind} end

local stored = nil
if kind == 'hash' then
  local f = redis.call('HMGET', KEYS[1], 'v', 'epoch', 'seq', 'change', 'cursor', 'session',
    'written_at', 'data', 'sum', 'entry', 'entry_at', 'entry_cursor')
  stored = {v = f[1], epoch = f[2], seq = f[3], change = f[4], cursor = f[5], session = f[6],
    at = f[7], data = f[8], sum = f[9], entry = f[10], entry_at = f[11], entry_cursor = f[12]}
  if number(stored.v) and compare(stored.v, ARGV[12]) > 0 then
    return {'foreign', 'a checkpoint of format version ' .. stored.v}
  end
  if not (number(stored.v) and number(stored.epoch) and number(stored.seq) and number(stored.at)
      and stored.change and stored.cursor and stored.session and stored.data and stored.sum) then
    return {'foreign', 'hash without the fields of a checkpoint'}
  end
  if redis.sha1hex(stored.data) ~= stored.sum then
    return {'foreign', 'checksum mismatch: the checkpoint was edited'}
  end

  local order = compare(epoch, stored.epoch)
  if order == 0 then order = compare(seq, stored.seq) end
  -- The client repeats a script whose reply was lost.
  if order == 0 and cursor == stored.cursor and session == stored.session then
    return {'same', ''}
  end
  if order <= 0 or known ~= stored.change then return {'conflict', stored.data} end
end

-- The history comes first, so that a script which the server stops half-way (no
-- permission, wrong type) leaves at most an entry too many, and no commit.
local place = epoch .. '.' .. seq
local same_epoch = stored and stored.epoch == epoch
local parent = stored and stored.entry or NONE
local mark = nil
if same_epoch and stored.entry and stored.cursor ~= stored.entry_cursor and at - stored.at >= DATA_EVERY then
  -- The last commit before a pause came too soon after an entry to be one. It
  -- is where the stream stood, so it becomes one now.
  local left = stored.epoch .. '.' .. stored.seq
  record(left, parent, stored.data, stored.at, '')
  redis.call('HSET', KEYS[1], 'entry', left, 'entry_at', stored.at, 'entry_cursor', stored.cursor)
  stored.entry, stored.entry_at, stored.entry_cursor = left, stored.at, stored.cursor
  parent = left
end
if not same_epoch then
  if stored then
    -- What is left behind becomes an entry and stays one: a change can be undone, and it
    -- is known how far the stream had come.
    local left = stored.epoch .. '.' .. stored.seq
    if redis.call('HEXISTS', KEYS[2], left) == 0 then
      record(left, parent, stored.data, stored.at, KEPT)
    else
      redis.call('ZREM', KEYS[3], left, left .. GROWTH)
      redis.call('ZADD', KEYS[3], stored.at, left .. KEPT)
    end
  end
  parent, mark = root, KEPT
elseif class == 'note' then
  mark = KEPT
elseif class == 'data' then
  local growth = stored.entry and cursor == stored.entry_cursor
  local passed = at - (stored.entry_at or 0)
  if not stored.entry or passed < 0 or passed >= (growth and GROWTH_EVERY or DATA_EVERY) then
    mark = growth and GROWTH or ''
  end
end
if mark then
  record(place, parent, data, at, mark)
  redis.call('HSET', KEYS[1], 'entry', place, 'entry_at', at, 'entry_cursor', cursor)
end
redis.call('HSET', KEYS[1], 'v', version, 'epoch', epoch, 'seq', seq, 'change', change,
  'cursor', cursor, 'session', session, 'written_at', at, 'data', data, 'sum', redis.sha1hex(data))
return {'applied', ''}
