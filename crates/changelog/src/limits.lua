
-- The second part of the library: limits of hosts; limits.rs has the rules. The hash KEYS[16] has host, or '*' for all
-- hosts -> rate and number of workers at once, decimal with a space between them, '-' for what is not limited.

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function host_of(worker)
  return string.match(worker, '^[^/]*')
end

local is_full

do
  -- Fields of a task and of a portion that is taken: see tasks.lua.
  local TAKEN, TAKEN_WORKER, TAKEN_EXPIRES = 9, 2, 3

  local function limits_of(keys, worker)
    return redis.call('HGET', keys[16], host_of(worker)) or redis.call('HGET', keys[16], '*')
  end

  -- Number of other workers of the same host that hold claims or portions, and whether this one does.
  local function at_work(keys, worker)
    local host, seen, others, now = host_of(worker), {}, 0, server_time()
    local function note(name)
      if seen[name] or host_of(name) ~= host then return end
      seen[name] = true
      if name ~= worker then others = others + 1 end
    end
    for _, packed in ipairs(redis.call('HVALS', keys[8])) do note(cmsgpack.unpack(packed)[L_WORKER]) end
    for _, packed in ipairs(redis.call('HVALS', keys[13])) do
      for _, taken in pairs(cmsgpack.unpack(packed)[TAKEN]) do
        if taken[TAKEN_EXPIRES] > now then note(taken[TAKEN_WORKER]) end
      end
    end
    return others, seen[worker]
  end

  -- True if a worker has to wait until another one of its host ends.
  is_full = function(keys, worker)
    local limits = limits_of(keys, worker)
    local at_once = limits and tonumber(string.match(limits, ' (%d+)$'))
    if not at_once then return false end
    local others, is_at_work = at_work(keys, worker)
    return not is_at_work and others >= at_once
  end

  -- worker; the limits of its host, '- -' if there are none, and the number of others that are at work
  local function allowance(keys, args)
    local others = at_work(keys, args[1])
    return { limits_of(keys, args[1]) or '- -', others }
  end

  -- host, limits or ''
  local function set_limits(keys, args)
    if args[2] == '' then
      redis.call('HDEL', keys[16], args[1])
    else
      redis.call('HSET', keys[16], args[1], args[2])
    end
    return 'done'
  end

  -- hosts and their limits, in turns
  local function all_limits(keys)
    return redis.call('HGETALL', keys[16])
  end

  redis.register_function('gabion_changelog_5_set_limits', set_limits)
  redis.register_function{
    function_name = 'gabion_changelog_5_allowance', callback = allowance, flags = { 'no-writes' } }
  redis.register_function{ function_name = 'gabion_changelog_5_limits', callback = all_limits, flags = { 'no-writes' } }
end
