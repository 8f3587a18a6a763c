#!lua name=gabion_changelog_5

-- The changelog as functions of the server: each call is atomic. The version in the name above and in the names at
-- the ends of the other parts of this library (limits, claims, journal, tasks, monitors, windows) changes with anything
-- that is stored or that a function takes.
--
-- Numbers in Lua are doubles, exact only up to 2^53. So times (by the clock of this server, offset by 2^63 to have no
-- sign), offsets in files and
-- sequence numbers are 16 lower-case hexadecimal digits here: comparing the strings compares the numbers.
--
-- Keys, in the order of KEYS:
--   1 counters  hash: sequence, token, identity, tick and doubt
--   2 entries   hash: path -> slot, packed
--   3 paths     sorted set of all paths
--   4 waiting   sorted set of priority (reversed), due, sequence and path of entries that are not claimed
--   5 stamps    sorted set of stamp and path of entries that are not claimed
--   6 firsts    sorted set of first and path
--   7 sums      hash: kind -> number of entries; c -> number of those that are claimed
--   8 claims    hash: token -> path, origin, kind, worker, granted, expires, packed
--   9 request   string: the last request of this client and its answer, for one that asks again
--  10 journal   stream: see journal.lua
--  11 workers   hash: name -> since, seen, granted, packed; of workers that attend
--  12 draining  set of hosts
--  13 tasks     hash: see tasks.lua
--  14 portions  hash: see tasks.lua
--  15 monitors  hash: see monitors.lua
--  16 limits    hash: see limits.lua
-- All sorted sets have score 0 throughout, so that they are in the order of their bytes.
--
-- A slot is { state, newer or false, sequence, token or 0, attempts }, a state
-- { kind, origin or false, ranges, first, stamp, due, latest, priority, from, to, windows, since }, ranges one string of
-- starts and ends; from and to are the versions that the ranges lie between, windows one string of pairs of versions
-- and since the tick before the first of them began (windows.rs). What is not known is not there.
--
-- A tick is a moment in the life of this server: each is larger than those before it, also than those that a server
-- forgot which came back with older files, since it is not less than the time in microseconds.

local MODIFY, MOVE, DELETE, GAP = 0, 1, 2, 3
local WHOLE = { '0000000000000000', 'ffffffffffffffff' }
local MAX_RANGES, KEPT_RANGES = 1024, 768
local MAX_WINDOWS = 1024
local REQUEST_SECONDS = 86400

local KIND, ORIGIN, RANGES, FIRST, STAMP, DUE, LATEST, PRIORITY, FROM, TO = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local WINDOWS, SINCE = 11, 12
local STATE, NEWER, SEQUENCE, TOKEN, ATTEMPTS = 1, 2, 3, 4, 5
local L_PATH, L_ORIGIN, L_KIND, L_WORKER, L_GRANTED, L_EXPIRES = 1, 2, 3, 4, 5, 6

-- Numbers of 64 bits.

local function split(number)
  return tonumber(string.sub(number, 1, 8), 16), tonumber(string.sub(number, 9, 16), 16)
end

local function join(high, low)
  return string.format('%08x%08x', high, low)
end

-- An integer up to 2^53.
local function hex(integer)
  return join(math.floor(integer / 4294967296), integer % 4294967296)
end

-- Down to 0 and no further.
local function minus(a, b)
  if a <= b then return WHOLE[1] end
  local a_high, a_low = split(a)
  local b_high, b_low = split(b)
  if a_low < b_low then
    a_low = a_low + 4294967296
    a_high = a_high - 1
  end
  return join(a_high - b_high, a_low - b_low)
end

-- Up to 2^64 - 1 and no further.
local function plus(a, b)
  local a_high, a_low = split(a)
  local b_high, b_low = split(b)
  local low, high = a_low + b_low, a_high + b_high
  if low >= 4294967296 then
    low = low - 4294967296
    high = high + 1
  end
  if high >= 4294967296 then return WHOLE[2] end
  return join(high, low)
end

local function least(a, b)
  if b < a then return b end
  return a
end

local function most(a, b)
  if b > a then return b end
  return a
end

-- Paths.

local function is_within(path, tree)
  if tree == '' or path == tree then return true end
  return string.sub(path, 1, #tree + 1) == tree .. '/'
end

-- The directory of a path, the root is the empty path; nil above the root.
local function above(path)
  if path == '' then return nil end
  return string.match(path, '^(.*)/[^/]*$') or ''
end

-- Ranges.

local function start_of(ranges, i)
  return string.sub(ranges, 32 * i + 1, 32 * i + 16)
end

local function end_of(ranges, i)
  return string.sub(ranges, 32 * i + 17, 32 * i + 32)
end

-- Merges across the narrowest gaps, the first of equals, down to KEPT_RANGES.
local function narrow(ranges, count)
  local gaps, joined, parts = {}, {}, {}
  for i = 0, count - 2 do gaps[i + 1] = { minus(start_of(ranges, i + 1), end_of(ranges, i)), i } end
  table.sort(gaps, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  for i = 1, count - KEPT_RANGES do joined[gaps[i][2]] = true end
  local first = start_of(ranges, 0)
  for i = 0, count - 1 do
    if not joined[i] then
      parts[#parts + 1] = first .. end_of(ranges, i)
      first = start_of(ranges, i + 1)
    end
  end
  return table.concat(parts)
end

-- The first range from `low` on for which `is_behind` holds, which holds for all after it as well.
local function search(low, high, is_behind)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(middle) then high = middle else low = middle + 1 end
  end
  return low
end

local function insert(ranges, first, last)
  local count = #ranges / 32
  local before = search(0, count, function(i) return end_of(ranges, i) >= first end)
  local after = search(before, count, function(i) return start_of(ranges, i) > last end)
  if after > before then
    first, last = least(first, start_of(ranges, before)), most(last, end_of(ranges, after - 1))
  end
  ranges = string.sub(ranges, 1, 32 * before) .. first .. last .. string.sub(ranges, 32 * after + 1)
  count = #ranges / 32
  return count > MAX_RANGES and narrow(ranges, count) or ranges
end

-- Ticks.

local function tick(keys)
  return redis.call('HGET', keys[1], 'tick') or WHOLE[1]
end

local function next_tick(keys)
  local time = redis.call('TIME')
  local now = most(hex(tonumber(time[1]) * 1000000 + tonumber(time[2])), plus(tick(keys), hex(1)))
  redis.call('HSET', keys[1], 'tick', now)
  return now
end

-- Changes before this moment may not be recorded: no window counts that began before.
local function doubt(keys)
  redis.call('HSET', keys[1], 'doubt', next_tick(keys))
end

local function last_doubt(keys)
  return redis.call('HGET', keys[1], 'doubt') or WHOLE[1]
end

-- States. `when` is { at, due, latest, priority }.

local function fresh(kind, when)
  return { kind, false, '', when[1], when[1], least(when[2], when[3]), when[3], when[4] }
end

local function postpone(state, when)
  state[LATEST] = least(state[LATEST], when[3])
  state[DUE] = least(when[2], state[LATEST])
  state[STAMP] = when[1]
  state[PRIORITY] = math.max(state[PRIORITY], when[4])
end

-- The span of an entry after a change: both, if the second begins where the first one ends, otherwise the later one.
local function span(state, from, to)
  if from == '' then return end
  if state[TO] ~= from then state[FROM] = from end
  state[TO] = to
end

-- `window` is { versions, since, last doubt }.
local function add_window(state, window)
  local since, doubted = window[2], window[3]
  if since < doubted then return end
  if state[SINCE] and state[SINCE] < doubted then state[WINDOWS], state[SINCE] = nil, nil end
  -- With too many of them nothing joins, and the file is read as a whole.
  if state[WINDOWS] and #state[WINDOWS] >= 32 * MAX_WINDOWS then state[WINDOWS] = '' end
  state[WINDOWS] = (state[WINDOWS] or '') .. window[1]
  state[SINCE] = least(state[SINCE] or since, since)
end

local function modify(state, range, when, from, to, window)
  if not state then
    state = fresh(MODIFY, when)
    state[RANGES] = range[1] .. range[2]
    span(state, from, to)
    if window then add_window(state, window) end
    return state
  end
  if state[KIND] ~= GAP then
    state[KIND] = MODIFY
    state[RANGES] = insert(state[RANGES], range[1], range[2])
    span(state, from, to)
    if window then add_window(state, window) end
  end
  postpone(state, when)
  return state
end

local function delete(state, when)
  local deleted = fresh(DELETE, when)
  if state then deleted[ORIGIN] = state[ORIGIN] end
  return deleted
end

local function gap(state, when)
  if not state then return fresh(GAP, when) end
  state[KIND], state[RANGES], state[FROM], state[TO] = GAP, '', nil, nil
  state[WINDOWS], state[SINCE] = nil, nil
  postpone(state, when)
  return state
end

local function copy(state)
  local twin = {}
  for i = 1, SINCE do twin[i] = state[i] end
  return twin
end

-- The tables of one call: what it read and changed, by path; false where there is nothing.

local function open(keys)
  return { keys = keys, slots = {}, stored = {}, packed = {} }
end

local function waiting_member(path, slot)
  local state = slot[STATE]
  return string.format('%02x', 255 - state[PRIORITY]) .. state[DUE] .. slot[SEQUENCE] .. path
end

-- Where the sorted sets and sums have the slot.
local function places(path, slot)
  local state = slot[STATE]
  local free = slot[TOKEN] == 0
  return {
    waiting = free and waiting_member(path, slot),
    stamp = free and state[STAMP] .. path,
    first = state[FIRST] .. path,
    kind = state[KIND],
    claimed = not free,
  }
end

local function load(db, path, packed)
  local slot = packed and cmsgpack.unpack(packed)
  db.slots[path] = slot
  db.stored[path] = slot and places(path, slot)
  db.packed[path] = packed
  return slot
end

-- Arguments of one call of the server; Lua passes some thousand at most.
local PIECE = 1000

-- Loads slots that will be needed, in few calls of the server, which cost more than anything else here.
local function fetch(db, paths)
  for from = 1, #paths, PIECE do
    local to = math.min(from + PIECE - 1, #paths)
    local packed = redis.call('HMGET', db.keys[2], unpack(paths, from, to))
    for i = from, to do load(db, paths[i], packed[i - from + 1]) end
  end
end

local function get(db, path)
  local slot = db.slots[path]
  if slot == nil then slot = load(db, path, redis.call('HGET', db.keys[2], path)) end
  return slot
end

local function put(db, path, slot)
  get(db, path)
  db.slots[path] = slot
end

local function take(db, path)
  local slot = get(db, path)
  db.slots[path] = false
  return slot
end

-- What is to be written: arguments of each command for each key, and how much each sum grows.
local function writes()
  return { calls = {}, sums = {} }
end

local function write(writes, command, key, ...)
  local id = command .. key
  local call = writes.calls[id]
  if not call then
    call = { command = command, key = key }
    writes.calls[id] = call
  end
  for i = 1, select('#', ...) do call[#call + 1] = (select(i, ...)) end
end

local function add(writes, sum, by)
  writes.sums[sum] = (writes.sums[sum] or 0) + by
end

local function move_member(writes, key, old, new)
  if old ~= new then
    if old then write(writes, 'ZREM', key, old) end
    if new then write(writes, 'ZADD', key, 0, new) end
  end
end

local function store(writes, db, path, slot)
  local keys = db.keys
  local old = db.stored[path] or {}
  local new = slot and places(path, slot) or {}
  local packed = slot and cmsgpack.pack(slot)
  if packed == db.packed[path] then return end
  if slot then
    write(writes, 'HSET', keys[2], path, packed)
  else
    write(writes, 'HDEL', keys[2], path)
  end
  move_member(writes, keys[3], old.first and path, new.first and path)
  move_member(writes, keys[4], old.waiting, new.waiting)
  move_member(writes, keys[5], old.stamp, new.stamp)
  move_member(writes, keys[6], old.first, new.first)
  if old.kind then add(writes, old.kind, -1) end
  if new.kind then add(writes, new.kind, 1) end
  if old.claimed then add(writes, 'c', -1) end
  if new.claimed then add(writes, 'c', 1) end
end

local function flush(db)
  local all = writes()
  for path, slot in pairs(db.slots) do store(all, db, path, slot) end
  for _, call in pairs(all.calls) do
    for from = 1, #call, PIECE do
      redis.call(call.command, call.key, unpack(call, from, math.min(from + PIECE - 1, #call)))
    end
  end
  for sum, by in pairs(all.sums) do
    if by ~= 0 then redis.call('HINCRBY', db.keys[7], sum, by) end
  end
  db.slots, db.stored, db.packed = {}, {}, {}
end

-- Every path beneath one, in order.
local function beneath(db, path)
  flush(db)
  if path == '' then return redis.call('ZRANGEBYLEX', db.keys[3], '(', '+') end
  -- '0' follows '/' in ASCII.
  return redis.call('ZRANGEBYLEX', db.keys[3], '(' .. path .. '/', '(' .. path .. '0')
end

-- Changes.

-- A state that takes the place of a slot: for the claim on that, all of it is newer.
local function replacing(state, sequence, attempts, old)
  local token = old and old[TOKEN] or 0
  return { state, token ~= 0 and copy(state), sequence, token, attempts }
end

local function change(db, path, sequence, act, ...)
  local slot = get(db, path)
  if not slot then
    slot = replacing(act(false, ...), sequence, 0)
  else
    if slot[TOKEN] ~= 0 then slot[NEWER] = act(slot[NEWER], ...) end
    slot[STATE] = act(slot[STATE], ...)
    slot[SEQUENCE] = sequence
  end
  put(db, path, slot)
  return slot
end

-- Origins that nobody refers to any more have to be cleared, unless something is pending there anyway, or they lie
-- within `covered`, which the worker clears.
local function clear(db, orphans, covered, sequence, when)
  for _, orphan in ipairs(orphans) do
    if not (covered and is_within(orphan, covered)) and not get(db, orphan) then
      put(db, orphan, replacing(fresh(DELETE, when), sequence, 0))
    end
  end
end

local function record_delete(db, path, sequence, when)
  local orphans = {}
  for _, child in ipairs(beneath(db, path)) do
    local origin = take(db, child)[STATE][ORIGIN]
    if origin and not is_within(origin, path) then orphans[#orphans + 1] = origin end
  end
  local slot = change(db, path, sequence, delete, when)
  slot[ATTEMPTS] = 0
  clear(db, orphans, slot[STATE][ORIGIN], sequence, when)
end

local function record_rename(db, from, to, sequence, when)
  local orphans = {}
  local function replace(path, state, attempts)
    local old = get(db, path)
    put(db, path, replacing(state, sequence, attempts, old))
    local origin = old and old[STATE][ORIGIN]
    if origin then orphans[#orphans + 1] = origin end
  end
  local children = beneath(db, from)
  local slot = get(db, from)
  local state, attempts
  if not slot then
    state, attempts = fresh(MOVE, when), 0
    state[ORIGIN] = from
  elseif slot[STATE][KIND] == DELETE then
    -- Something was there again, and nobody said what: it has to be looked at.
    state, attempts = fresh(GAP, when), 0
  else
    take(db, from)
    state, attempts = slot[STATE], slot[ATTEMPTS]
    if state[ORIGIN] then orphans[1] = from else state[ORIGIN] = from end
    state[PRIORITY] = math.max(state[PRIORITY], when[4])
  end
  replace(to, state, attempts)
  for _, child in ipairs(children) do
    local moved = take(db, child)
    moved[STATE][ORIGIN] = moved[STATE][ORIGIN] or child
    replace(to .. string.sub(child, #from + 1), moved[STATE], moved[ATTEMPTS])
  end
  clear(db, orphans, state[ORIGIN], sequence, when)
end

-- The answer that a client got, if it asks again for what was done already. It is written again, so that a client
-- that waits for its last write to be on disk waits for the first one as well.
local function answered(keys, request)
  local last = redis.call('GET', keys[9])
  if last and string.sub(last, 1, 16) == request then
    redis.call('EXPIRE', keys[9], REQUEST_SECONDS)
    return string.sub(last, 17)
  end
end

local function answer(keys, request, result)
  redis.call('SET', keys[9], request .. result, 'EX', REQUEST_SECONDS)
  return result
end

-- request, the last one of this client that was answered or '', then for each change: tag, path, other path, start, end, at, due, latest, priority, versions from and to,
-- versions and since of a window
local function record(keys, args)
  local again = answered(keys, args[1])
  if again then return again end
  -- The server came back without what it had answered.
  if args[2] ~= '' and string.sub(redis.call('GET', keys[9]) or '', 1, 16) ~= args[2] then doubt(keys) end
  local db = open(keys)
  local count = (#args - 2) / 13
  local last = redis.call('HINCRBY', keys[1], 'sequence', count)
  local paths = {}
  for at = 4, #args, 13 do paths[#paths + 1] = args[at] end
  fetch(db, paths)
  for i = 1, count do
    local at = 13 * i - 10
    local path, other, sequence = args[at + 1], args[at + 2], hex(last - count + i)
    local range, tag = { args[at + 3], args[at + 4] }, args[at]
    local when = { args[at + 5], args[at + 6], args[at + 7], tonumber(args[at + 8]) }
    if tag == 'modify' then
      -- A file that is there again after its deletion is another file.
      local slot = get(db, path)
      if slot and slot[STATE][KIND] == DELETE then range = WHOLE end
      local window = args[at + 11] ~= '' and { args[at + 11], args[at + 12], last_doubt(keys) }
      change(db, path, sequence, modify, range, when, args[at + 9], args[at + 10], window)
    elseif tag == 'gap' then
      doubt(keys)
      change(db, path, sequence, gap, when)
    elseif tag == 'delete' then
      record_delete(db, path, sequence, when)
    elseif path ~= other then
      record_rename(db, path, other, sequence, when)
    end
  end
  flush(db)
  return answer(keys, args[1], string.format('%.0f', last))
end
