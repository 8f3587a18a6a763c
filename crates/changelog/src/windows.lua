
-- The seventh part of the library: whether all ranges of a file are known; windows.rs has the rules. The hash KEYS[15] has
-- 'x' name for each mount that may have changed files without recording it.

-- name, the tick up to which it has recorded everything, or ''; the present tick
local function cover(keys, args)
  local now, mark = tick(keys), mark_of(keys, args[1])
  if mark and args[2] ~= '' and args[2] <= now and args[2] ~= mark[M_COVERED] then
    mark[M_COVERED] = args[2]
    put_mark(keys, args[1], mark)
  end
  return now
end

-- name
local function distrust(keys, args)
  redis.call('HSET', keys[15], 'x' .. args[1], cmsgpack.pack({}))
  return 'done'
end

-- A new tick.
local function fence(keys)
  return next_tick(keys)
end

-- a tick; 1 if every mount is there and has recorded what it wrote before
local function is_covered(keys, args)
  if #marks(keys, 'x') > 0 then return 0 end
  local now = server_time()
  for _, it in ipairs(marks(keys, 'm')) do
    local mark = it[2]
    if mark[M_KIND] == 'mount' and ((mark[M_COVERED] or '') < args[1] or is_over(mark, now)) then return 0 end
  end
  return 1
end

-- path, token, worker; ranges and windows of what is pending
local function written(keys, args)
  local slot = held(open(keys), args[1], args[2], args[3])
  local state = slot and slot[STATE]
  if not state or state[KIND] ~= MODIFY then return { '', '' } end
  local counts = state[SINCE] and state[SINCE] >= last_doubt(keys)
  return { state[RANGES], counts and state[WINDOWS] or '' }
end

redis.register_function('gabion_changelog_5_cover', cover)
redis.register_function('gabion_changelog_5_distrust', distrust)
redis.register_function('gabion_changelog_5_fence', fence)
redis.register_function{
  function_name = 'gabion_changelog_5_is_covered', callback = is_covered, flags = { 'no-writes' } }
redis.register_function{ function_name = 'gabion_changelog_5_written', callback = written, flags = { 'no-writes' } }
