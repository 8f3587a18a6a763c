
-- The fifth part of the library: tasks. The hash KEYS[13] has id -> packed
-- { kind, priority, order, owner, expires, added, next, back, taken, finished, overtaken, opened, amounts }; `back` are
-- numbers of portions that were begun and given up, `taken` maps a number to { token, worker, expires }, `amounts` are
-- four decimal numbers. The hash KEYS[14] has
-- id 'a' (what the task is about), id 'b' number (the content of a portion) and id 'r' number (its result).
--
-- Leases are counted by the clock of the server, in milliseconds: clocks of hosts may differ.

local T_KIND, T_PRIORITY, T_ORDER, T_OWNER, T_EXPIRES, T_ADDED = 1, 2, 3, 4, 5, 6
local T_NEXT, T_BACK, T_TAKEN, T_FINISHED, T_OVERTAKEN = 7, 8, 9, 10, 11
local T_OPENED, T_AMOUNTS = 12, 13
local RESULT_BYTES = 1048576

local function task_of(keys, id)
  local packed = redis.call('HGET', keys[13], id)
  return packed and cmsgpack.unpack(packed)
end

local function store(keys, id, task)
  redis.call('HSET', keys[13], id, cmsgpack.pack(task))
end

local function drop(keys, id, task)
  local fields = { id .. 'a' }
  for number = 0, task[T_ADDED] - 1 do
    fields[#fields + 1] = id .. 'b' .. number
    fields[#fields + 1] = id .. 'r' .. number
    if #fields > 1000 then
      redis.call('HDEL', keys[14], unpack(fields))
      fields = {}
    end
  end
  if #fields > 0 then redis.call('HDEL', keys[14], unpack(fields)) end
  redis.call('HDEL', keys[13], id)
end

-- Portions of workers whose lease ran out are to be begun again. A lease that ends later than one given now was given
-- before the clock was set back. True if there was any.
local function end_terms(task, now, longest)
  local found = false
  for number, taken in pairs(task[T_TAKEN]) do
    if taken[3] <= now or taken[3] > now + longest then
      task[T_TAKEN][number] = nil
      task[T_BACK][#task[T_BACK] + 1] = tonumber(number)
      task[T_OVERTAKEN] = task[T_OVERTAKEN] + 1
      found = true
    end
  end
  return found
end

-- id, kind, priority, owner, lease, about, amounts
local function open_task(keys, args)
  local task = { args[2], tonumber(args[3]), redis.call('HINCRBY', keys[1], 'task', 1), args[4],
    server_time() + tonumber(args[5]), 0, 0, {}, {}, 0, 0, server_time(), args[7] }
  redis.call('HSET', keys[14], args[1] .. 'a', args[6])
  store(keys, args[1], task)
  return 'done'
end

-- id, number of portions that there are from now on, contents of the new ones ('' for all if they have none)
local function add_portions(keys, args)
  local task = task_of(keys, args[1])
  if not task then return 'lost' end
  local added = tonumber(args[2])
  local first = added - (#args - 2)
  for i = 3, #args do redis.call('HSET', keys[14], args[1] .. 'b' .. string.format('%.0f', first + i - 3), args[i]) end
  task[T_ADDED] = math.max(task[T_ADDED], added)
  store(keys, args[1], task)
  return 'done'
end

-- worker, lease, longest lease, id or '', kinds that the worker knows, least priority, then ids that it does not want.
-- Nothing of others' tasks if as many workers of the host are at work as may be.
local function take(keys, args)
  local worker, now, longest = args[1], server_time(), tonumber(args[3])
  local unwanted, best, best_id = {}, nil, nil
  for i = 7, #args do unwanted[args[i]] = true end
  local known = redis.call('HGETALL', keys[13])
  for i = 1, #known, 2 do
    local id, task = known[i], cmsgpack.unpack(known[i + 1])
    if task[T_EXPIRES] <= now or task[T_EXPIRES] > now + longest then
      drop(keys, id, task)
    else
      local changed = end_terms(task, now, longest)
      if changed then store(keys, id, task) end
      local wanted = not unwanted[id] and string.find(args[5], task[T_KIND], 1, true)
        and task[T_PRIORITY] >= tonumber(args[6])
      if args[4] ~= '' then wanted = id == args[4] end
      if wanted and (#task[T_BACK] > 0 or task[T_NEXT] < task[T_ADDED]) then
        local first = not best or task[T_PRIORITY] > best[T_PRIORITY]
          or task[T_PRIORITY] == best[T_PRIORITY] and task[T_ORDER] < best[T_ORDER]
        if first then best, best_id = task, id end
      end
    end
  end
  if not best or args[4] == '' and is_full(keys, worker) then return {} end
  local number = table.remove(best[T_BACK])
  if not number then
    number = best[T_NEXT]
    best[T_NEXT] = number + 1
  end
  -- A server that lost what it had must not give a number again, which a worker may still hold.
  local last = tonumber(redis.call('HGET', keys[1], 'portion') or '0')
  local token = math.max(last + 1, now * 1000)
  redis.call('HSET', keys[1], 'portion', string.format('%.0f', token))
  local name = string.format('%.0f', number)
  best[T_TAKEN][name] = { token, worker, now + tonumber(args[2]) }
  store(keys, best_id, best)
  return { best_id, best[T_KIND], name, string.format('%.0f', token), redis.call('HGET', keys[14], best_id .. 'a'),
    redis.call('HGET', keys[14], best_id .. 'b' .. name) or '' }
end

local function is_held(task, number, token)
  local taken = task and task[T_TAKEN][number]
  return taken and string.format('%.0f', taken[1]) == token
end

-- lease, then for each: id, and number and token of a portion, or '' and amounts for the task itself. Returns for each
-- whether it is held.
local function keep(keys, args)
  local expires, tasks, held = server_time() + tonumber(args[1]), {}, {}
  for i = 2, #args, 3 do
    local id, number, token = args[i], args[i + 1], args[i + 2]
    local task = tasks[id]
    if task == nil then
      task = task_of(keys, id) or false
      tasks[id] = task
    end
    local is_mine = task and number == '' or is_held(task, number, token)
    if is_mine and number == '' then task[T_EXPIRES], task[T_AMOUNTS] = expires, token end
    if is_mine and number ~= '' then task[T_TAKEN][number][3] = expires end
    held[#held + 1] = is_mine and 1 or 0
  end
  for id, task in pairs(tasks) do
    if task then store(keys, id, task) end
  end
  return held
end

-- request, id, number, token, result
local function finish(keys, args)
  local again = answered(keys, args[1])
  if again then return again end
  local id, number = args[2], args[3]
  local task = task_of(keys, id)
  if not is_held(task, number, args[4]) then return answer(keys, args[1], 'lost') end
  task[T_TAKEN][number] = nil
  task[T_FINISHED] = task[T_FINISHED] + 1
  store(keys, id, task)
  redis.call('HDEL', keys[14], id .. 'b' .. number)
  redis.call('HSET', keys[14], id .. 'r' .. number, args[5])
  return answer(keys, args[1], 'done')
end

-- id, number, token
local function put_back(keys, args)
  local task = task_of(keys, args[1])
  if not is_held(task, args[2], args[3]) then return 'lost' end
  task[T_TAKEN][args[2]] = nil
  task[T_BACK][#task[T_BACK] + 1] = tonumber(args[2])
  store(keys, args[1], task)
  return 'done'
end

-- id, numbers whose results are wanted
local function collect(keys, args)
  local task = task_of(keys, args[1])
  if not task then return {} end
  local found, bytes = { task[T_FINISHED], task[T_OVERTAKEN] }, 0
  for i = 2, #args do
    local result = redis.call('HGET', keys[14], args[1] .. 'r' .. args[i])
    if result and bytes < RESULT_BYTES then
      bytes = bytes + #result
      found[#found + 1] = args[i]
      found[#found + 1] = result
    end
  end
  return found
end

-- id, numbers whose results were collected
local function forget_results(keys, args)
  for i = 2, #args do redis.call('HDEL', keys[14], args[1] .. 'r' .. args[i]) end
  return 'done'
end

-- id
local function close_task(keys, args)
  local task = task_of(keys, args[1])
  if task then drop(keys, args[1], task) end
  return 'done'
end

local function known_tasks(keys)
  local found, known, now = {}, redis.call('HGETALL', keys[13]), server_time()
  for i = 1, #known, 2 do
    local task, taken, workers = cmsgpack.unpack(known[i + 1]), 0, {}
    for _, it in pairs(task[T_TAKEN]) do
      if it[3] > now then
        taken = taken + 1
        workers[it[2]] = true
      end
    end
    local names = {}
    for name in pairs(workers) do names[#names + 1] = name end
    table.sort(names)
    local fields = { known[i], task[T_KIND], task[T_OWNER], task[T_ADDED], task[T_FINISHED], taken,
      task[T_ORDER], names, math.max(0, now - task[T_OPENED]) }
    for amount in string.gmatch(task[T_AMOUNTS], '%d+') do fields[#fields + 1] = amount end
    if task[T_EXPIRES] > now then found[#found + 1] = fields end
  end
  return found
end

redis.register_function('gabion_changelog_5_open_task', open_task)
redis.register_function('gabion_changelog_5_add_portions', add_portions)
redis.register_function('gabion_changelog_5_take', take)
redis.register_function('gabion_changelog_5_keep', keep)
redis.register_function('gabion_changelog_5_finish', finish)
redis.register_function('gabion_changelog_5_put_back', put_back)
redis.register_function('gabion_changelog_5_forget_results', forget_results)
redis.register_function('gabion_changelog_5_close_task', close_task)
redis.register_function{ function_name = 'gabion_changelog_5_collect', callback = collect, flags = { 'no-writes' } }
redis.register_function{
  function_name = 'gabion_changelog_5_known_tasks', callback = known_tasks, flags = { 'no-writes' } }
