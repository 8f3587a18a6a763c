
-- The sixth part of the library: marks of monitors. The hash KEYS[15] has 'm' name -> packed { kind, since, expires, covered }
-- for each mark, and 'l' name -> packed { kind, since, first } for each that was given up, until the gap is worked off:
-- as long as there is a gap for the whole tree that is not younger than `first`. `covered` is the tick up to which it has
-- recorded everything (windows.lua).
--
-- Leases are counted by the clock of the server, in milliseconds: clocks of hosts may differ.

local M_KIND, M_SINCE, M_EXPIRES, M_FIRST, M_COVERED = 1, 2, 3, 3, 4

-- A gap for the whole tree; `when` as everywhere. Returns the time of the gap that is pending then, or will be if a
-- worker completes what it has claimed.
local function record_gap(keys, when)
  doubt(keys)
  local db = open(keys)
  local slot = change(db, '', hex(redis.call('HINCRBY', keys[1], 'sequence', 1)), gap, when)
  flush(db)
  return most(slot[STATE][FIRST], slot[NEWER] and slot[NEWER][FIRST] or '')
end

-- The time of a gap for the whole tree, if there is one.
local function pending_gap(keys)
  local slot = get(open(keys), '')
  return slot and slot[STATE][KIND] == GAP and slot[STATE][FIRST]
end

-- Names, with marks ('m') or losses ('l').
local function marks(keys, letter)
  local found = {}
  local all = redis.call('HGETALL', keys[15])
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == letter then
      found[#found + 1] = { string.sub(all[i], 2), cmsgpack.unpack(all[i + 1]) }
    end
  end
  return found
end

-- Removes losses whose gap is worked off.
local function forget_losses(keys)
  local first = pending_gap(keys)
  for _, it in ipairs(marks(keys, 'l')) do
    if not first or first > it[2][M_FIRST] then redis.call('HDEL', keys[15], 'l' .. it[1]) end
  end
end

-- A lease that ends later than any that is given now was given before the clock was set back.
local LONGEST_LEASE = 60000
local function is_over(mark, now)
  return mark[M_EXPIRES] <= now or mark[M_EXPIRES] > now + LONGEST_LEASE
end

-- Milliseconds for which the server has been running; none if it does not say.
local function uptime()
  local info = redis.pcall('INFO', 'server')
  local seconds = type(info) == 'string' and string.match(info, 'uptime_in_seconds:(%d+)')
  return seconds and tonumber(seconds) * 1000
end

local function mark_of(keys, name)
  local packed = redis.call('HGET', keys[15], 'm' .. name)
  return packed and cmsgpack.unpack(packed)
end

local function put_mark(keys, name, mark)
  redis.call('HSET', keys[15], 'm' .. name, cmsgpack.pack(mark))
end

local function set_mark(keys, args, covered)
  put_mark(keys, args[1], { args[2], args[3], server_time() + tonumber(args[4]), covered })
end

-- name, kind, since, lease
local function begin_monitor(keys, args)
  set_mark(keys, args, tick(keys))
  return 'done'
end

-- name, kind, since, lease, at, due, latest, priority
local function renew_monitor(keys, args)
  local mark = mark_of(keys, args[1])
  local is_there = mark ~= nil and mark ~= false
  -- Losses that are worked off have nothing to do with this gap, whose time may be from before a long interruption.
  if not is_there then forget_losses(keys) end
  if not is_there then record_gap(keys, { args[5], args[6], args[7], tonumber(args[8]) }) end
  set_mark(keys, args, is_there and mark[M_COVERED] or WHOLE[1])
  return is_there and 'kept' or 'again'
end

-- name
local function end_monitor(keys, args)
  redis.call('HDEL', keys[15], 'm' .. args[1], 'x' .. args[1])
  return 'done'
end

-- lease, at, due, latest, priority, then names of dead ones
local function give_up_monitors(keys, args)
  local now, up = server_time(), uptime()
  local is_young = up and up < tonumber(args[1])
  local dead, given_up = {}, {}
  for i = 6, #args do dead[args[i]] = true end
  forget_losses(keys)
  for _, it in ipairs(marks(keys, 'm')) do
    local name, mark = it[1], it[2]
    if dead[name] or (is_over(mark, now) and not is_young) then
      given_up[#given_up + 1] = { name, mark[M_KIND], mark[M_SINCE] }
    end
  end
  if #given_up == 0 then return given_up end
  local first = record_gap(keys, { args[2], args[3], args[4], tonumber(args[5]) })
  for _, it in ipairs(given_up) do
    redis.call('HDEL', keys[15], 'm' .. it[1])
    if dead[it[1]] then redis.call('HDEL', keys[15], 'x' .. it[1]) end
    redis.call('HSET', keys[15], 'l' .. it[1], cmsgpack.pack({ it[2], it[3], first }))
  end
  return given_up
end

local function known_monitors(keys)
  local now, found = server_time(), {}
  local first = pending_gap(keys)
  for _, it in ipairs(marks(keys, 'm')) do
    local name, mark = it[1], it[2]
    found[#found + 1] = { name, mark[M_KIND], mark[M_SINCE], mark[M_EXPIRES] > now and 'running' or 'silent',
      math.max(0, now - mark[M_EXPIRES]) }
  end
  for _, it in ipairs(marks(keys, 'l')) do
    if first and first <= it[2][M_FIRST] then
      found[#found + 1] = { it[1], it[2][M_KIND], it[2][M_SINCE], 'lost', 0 }
    end
  end
  return found
end

redis.register_function('gabion_changelog_5_begin_monitor', begin_monitor)
redis.register_function('gabion_changelog_5_renew_monitor', renew_monitor)
redis.register_function('gabion_changelog_5_end_monitor', end_monitor)
redis.register_function('gabion_changelog_5_give_up_monitors', give_up_monitors)
redis.register_function{
  function_name = 'gabion_changelog_5_known_monitors', callback = known_monitors, flags = { 'no-writes' } }
