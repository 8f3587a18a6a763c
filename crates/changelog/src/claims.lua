
-- The third part of the library: claims, and what there is. What it uses of the first part, functions.lua, is described there.

-- One call grants a known worker at most its equal share of what is due, divided by this.
local PARTS = 4

-- Claims.

local function touch(busy, path)
  if not busy.touched[path] then
    busy.touched[path] = true
    local directory = above(path)
    while directory and not busy.around[directory] do
      busy.around[directory] = true
      directory = above(directory)
    end
  end
end

local function is_free(busy, path)
  if busy.touched[path] or busy.around[path] then return false end
  local directory = above(path)
  while directory do
    if busy.touched[directory] then return false end
    directory = above(directory)
  end
  return true
end

-- Takes the paths of a claim or says that one is taken; even then they are, so that who waits keeps its place.
local function occupy(busy, kind, path, origin)
  if kind == GAP then return true end
  local free = is_free(busy, path) and (not origin or is_free(busy, origin))
  touch(busy, path)
  if origin then touch(busy, origin) end
  return free
end

local function give_back(slot)
  slot[TOKEN], slot[NEWER], slot[ATTEMPTS] = 0, false, slot[ATTEMPTS] + 1
end

-- Ends a claim whose worker will not come back.
local function end_claim(db, token, lock)
  redis.call('HDEL', db.keys[8], token)
  local slot = get(db, lock[L_PATH])
  if slot and slot[TOKEN] == tonumber(token) then give_back(slot) end
end

-- Ends the claims whose lease ran out. A lease from the future was given before the clock was set back: it lasts as
-- long as it was meant to, from now on. The paths of the others are busy; also returns the names of their workers.
local function end_leases(db, now)
  local busy, holders = { touched = {}, around = {} }, {}
  local claims = redis.call('HGETALL', db.keys[8])
  for i = 1, #claims, 2 do
    local token, lock = claims[i], cmsgpack.unpack(claims[i + 1])
    if lock[L_GRANTED] <= now and lock[L_EXPIRES] <= now then
      end_claim(db, token, lock)
    else
      if lock[L_GRANTED] > now then
        lock[L_EXPIRES] = plus(now, minus(lock[L_EXPIRES], lock[L_GRANTED]))
        lock[L_GRANTED] = now
        redis.call('HSET', db.keys[8], token, cmsgpack.pack(lock))
      end
      occupy(busy, lock[L_KIND], lock[L_PATH], lock[L_ORIGIN])
      holders[lock[L_WORKER]] = true
    end
  end
  return busy, holders
end

-- The clock was set back: what was to wait until some time waits as long from now on.
local function pull_back(db, now, tolerated)
  flush(db)
  if tolerated == WHOLE[2] then return end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', db.keys[5], '[' .. plus(tolerated, hex(1)), '+')) do
    local state = get(db, string.sub(member, 17))[STATE]
    local ahead = least(minus(state[STAMP], now), '7fffffffffffffff')
    state[DUE], state[LATEST] = minus(state[DUE], ahead), minus(state[LATEST], ahead)
    state[FIRST], state[STAMP] = least(state[FIRST], now), now
  end
  flush(db)
end

-- Paths to claim, in order.
local function choose(db, busy, now, limit, most_passed_over)
  local chosen, passed_over, from = {}, 0, '-'
  local page = 128
  while true do
    local next_one = redis.call('ZRANGEBYLEX', db.keys[4], from, '+', 'LIMIT', 0, 1)[1]
    if not next_one then return chosen end
    local priority = string.sub(next_one, 1, 2)
    -- 'g' follows all digits: behind everything that is due by now, and behind everything of this priority.
    local until_now, offset = '(' .. priority .. now .. 'g', 0
    repeat
      local members = redis.call(
        'ZRANGEBYLEX', db.keys[4], '[' .. priority, until_now, 'LIMIT', offset, page)
      for _, member in ipairs(members) do
        if #chosen >= limit or passed_over >= most_passed_over then return chosen end
        local path = string.sub(member, 35)
        local state = get(db, path)[STATE]
        if occupy(busy, state[KIND], path, state[ORIGIN]) then
          chosen[#chosen + 1] = path
        else
          passed_over = passed_over + 1
        end
      end
      offset = offset + page
    until #members < page
    from = '[' .. priority .. 'g'
  end
end

local function shown(path, slot)
  local state = slot[STATE]
  return {
    path, tostring(state[KIND]), state[ORIGIN] and '+' .. state[ORIGIN] or '-', state[RANGES], slot[SEQUENCE],
    state[FIRST], state[DUE], tostring(state[PRIORITY]), tostring(slot[ATTEMPTS]),
    string.format('%.0f', slot[TOKEN]), state[FROM] or '', state[TO] or '',
  }
end

-- Gives a worker a claim on a path.
local function grant(db, path, worker, now, expires)
  local slot = get(db, path)
  local token = redis.call('HINCRBY', db.keys[1], 'token', 1)
  slot[TOKEN], slot[NEWER] = token, false
  local state = slot[STATE]
  local lock = { path, state[ORIGIN], state[KIND], worker, now, expires }
  redis.call('HSET', db.keys[8], string.format('%.0f', token), cmsgpack.pack(lock))
  return shown(path, slot)
end

-- Claims of entries that touch no busy path.
local function grant_chosen(db, busy, worker, now, limit, expires, most_passed_over)
  local claims = {}
  for i, path in ipairs(choose(db, busy, now, limit, most_passed_over)) do
    claims[i] = grant(db, path, worker, now, expires)
  end
  flush(db)
  return claims
end

-- worker, limit, now, now and what clocks may differ by, end of the lease, how many may be passed over
local function claim(keys, args)
  local worker, limit, now, tolerated, expires = args[1], tonumber(args[2]), args[3], args[4], args[5]
  local db = open(keys)
  local busy = end_leases(db, now)
  pull_back(db, now, tolerated)
  return grant_chosen(db, busy, worker, now, limit, expires, tonumber(args[6]))
end

-- worker, now, end of the lease, then the paths, due or not; the claims, and the paths that others are in the way of
local function claim_paths(keys, args)
  local db = open(keys)
  local busy = end_leases(db, args[2])
  local claims, taken = {}, {}
  for i = 4, #args do
    local path = args[i]
    local slot = get(db, path)
    if slot then
      local state = slot[STATE]
      if slot[TOKEN] == 0 and occupy(busy, state[KIND], path, state[ORIGIN]) then
        claims[#claims + 1] = grant(db, path, args[1], args[2], args[3])
      else
        taken[#taken + 1] = path
      end
    end
  end
  flush(db)
  return { claims, taken }
end

-- The slot and the lock of a claim, or why it is not held. A server that lost what it had may give a number again, to
-- another worker.
local function held(db, path, token, worker)
  local packed = redis.call('HGET', db.keys[8], token)
  local lock = packed and cmsgpack.unpack(packed)
  if not lock or lock[L_WORKER] ~= worker then return nil, 'lost' end
  local slot = get(db, path)
  if slot and slot[TOKEN] == tonumber(token) then return slot, lock end
  return nil, 'overtaken'
end

local function extend(db, path, token, worker, now, expires)
  local slot, lock = held(db, path, token, worker)
  if not slot then return lock end
  lock[L_GRANTED], lock[L_EXPIRES] = now, expires
  redis.call('HSET', db.keys[8], token, cmsgpack.pack(lock))
  return 'done'
end

-- path, token, worker, now, end of the lease
local function renew(keys, args)
  return extend(open(keys), args[1], args[2], args[3], args[4], args[5])
end

-- now, end of the lease, then for each claim: path, token, worker; the tokens of those that are not held
local function renew_all(keys, args)
  local db, refused = open(keys), {}
  for i = 3, #args, 3 do
    local path, token, worker = args[i], args[i + 1], args[i + 2]
    if extend(db, path, token, worker, args[1], args[2]) ~= 'done' then refused[#refused + 1] = token end
  end
  return refused
end

-- The names of those who attend or hold claims, each once.
local function workers(keys)
  local seen, names = {}, redis.call('HKEYS', keys[11])
  for _, name in ipairs(names) do seen[name] = true end
  for _, packed in ipairs(redis.call('HVALS', keys[8])) do
    local worker = cmsgpack.unpack(packed)[L_WORKER]
    if not seen[worker] then
      seen[worker] = true
      names[#names + 1] = worker
    end
  end
  return names
end

-- request, then the names of workers that are dead; how many claims they had
local function bury(keys, args)
  local again = answered(keys, args[1])
  if again then return again end
  local dead, buried, db = {}, 0, open(keys)
  for i = 2, #args do
    dead[args[i]] = true
    redis.call('HDEL', keys[11], args[i])
  end
  local claims = redis.call('HGETALL', keys[8])
  for i = 1, #claims, 2 do
    local token, lock = claims[i], cmsgpack.unpack(claims[i + 1])
    if dead[lock[L_WORKER]] then
      end_claim(db, token, lock)
      buried = buried + 1
    end
  end
  flush(db)
  return answer(keys, args[1], tostring(buried))
end

-- path, token, worker
local function mine(keys, args)
  local slot, why = held(open(keys), args[1], args[2], args[3])
  return slot and 'done' or why
end

-- for each claim: path, token, worker; 1 for each that is held
local function which_are_mine(keys, args)
  local db, results = open(keys), {}
  for i = 1, #args, 3 do results[#results + 1] = held(db, args[i], args[i + 1], args[i + 2]) and 1 or 0 end
  return results
end

-- A worker that is refused has stopped as well, so its lock ends in either case.
local function finish_one(db, path, token, worker, act)
  local slot, result = held(db, path, token, worker)
  if result ~= 'lost' then redis.call('HDEL', db.keys[8], token) end
  if slot then
    result = act(slot)
    if result == 'done' then put(db, path, false) end
    flush(db)
  end
  return result
end

-- args are request, path, token, worker
local function finish(keys, args, act)
  local again = answered(keys, args[1])
  if again then return again end
  return answer(keys, args[1], finish_one(open(keys), args[2], args[3], args[4], act))
end

local function completed(slot)
  if not slot[NEWER] then return 'done' end
  slot[STATE], slot[NEWER], slot[TOKEN], slot[ATTEMPTS] = slot[NEWER], false, 0, 0
  return 'newer'
end

-- request, path, token, worker
local function complete(keys, args)
  return finish(keys, args, completed)
end

-- request, then for each claim: path, token, worker; the results in one string
local function complete_all(keys, args)
  local again = answered(keys, args[1])
  if again then return again end
  local results = {}
  for i = 2, #args, 3 do
    results[#results + 1] = finish_one(open(keys), args[i], args[i + 1], args[i + 2], completed)
  end
  return answer(keys, args[1], table.concat(results, ' '))
end

-- request, path, token, worker, now, when to try again
local function release(keys, args)
  return finish(keys, args, function(slot)
    give_back(slot)
    local state = slot[STATE]
    state[STAMP], state[DUE], state[LATEST] = args[5], args[6], most(state[LATEST], args[6])
    return 'released'
  end)
end

-- Known workers; share.rs has the rules.

local W_SINCE, W_SEEN, W_GRANTED = 1, 2, 3

local function put_worker(keys, name, presence)
  redis.call('HSET', keys[11], name, cmsgpack.pack(presence))
end

-- Attending workers by name. `over` and `future` are the last times of a sign of life that is over, and that may be true.
local function attending(keys, over, future)
  local known, lost = {}, {}
  local packed = redis.call('HGETALL', keys[11])
  for i = 1, #packed, 2 do
    local presence = cmsgpack.unpack(packed[i + 1])
    if presence[W_SEEN] <= over or presence[W_SEEN] > future then
      lost[#lost + 1] = packed[i]
    else
      known[packed[i]] = presence
    end
  end
  return known, lost
end

local function refresh(keys, known, lost, worker, now, stale)
  for _, name in ipairs(lost) do redis.call('HDEL', keys[11], name) end
  if not worker then return end
  local presence = known[worker]
  if not presence then
    presence = { now, now, 0 }
  elseif presence[W_SEEN] > stale and presence[W_SEEN] <= now then
    return
  end
  presence[W_SEEN] = now
  known[worker] = presence
  put_worker(keys, worker, presence)
end

local function drains(keys, worker)
  return redis.call('SISMEMBER', keys[12], host_of(worker)) == 1
end

-- Number of due entries that are not claimed, up to `limit`.
local function count_due(db, now, limit)
  local count, from = 0, '-'
  while count < limit do
    local next_one = redis.call('ZRANGEBYLEX', db.keys[4], from, '+', 'LIMIT', 0, 1)[1]
    if not next_one then return count end
    local priority = string.sub(next_one, 1, 2)
    count = count + redis.call('ZLEXCOUNT', db.keys[4], '[' .. priority, '(' .. priority .. now .. 'g')
    from = '[' .. priority .. 'g'
  end
  return limit
end

local function divide_up(a, b)
  return math.floor((a + b - 1) / b)
end

-- worker, limit, now, now and what clocks may differ by, end of the lease, how many may be passed over, threads, and as
-- 0 or 1 whether it attends, insists, and heeds drains; the last signs of life that are over, stale, and may be true; how
-- many are counted. The answer: number of due entries, as 0 or 1 whether they are reserved, whether the host drains,
-- whether others hold claims and whether as many workers of the host are at work as may be, and the claims.
local function claim_share(keys, args)
  local worker, limit, now, threads = args[1], tonumber(args[2]), args[3], tonumber(args[7])
  local attends, insists, heeds = args[8] == '1', args[9] == '1', args[10] == '1'
  local db = open(keys)
  local busy, holders = end_leases(db, now)
  pull_back(db, now, args[4])
  local known, lost = attending(keys, args[11], args[13])
  refresh(keys, known, lost, attends and worker, now, args[12])
  local mine = attends and known[worker]
  known[worker], holders[worker] = nil, nil
  local has_others = next(holders) and 1 or 0
  if heeds and drains(keys, worker) then return { 0, 0, 1, has_others, 0, {} } end
  if heeds and is_full(keys, worker) then return { 0, 0, 0, has_others, 1, {} } end
  local granted, attendants, strangers = 0, 0, 0
  for name, presence in pairs(known) do
    if not drains(keys, name) then granted, attendants = granted + presence[W_GRANTED], attendants + 1 end
  end
  for name in pairs(holders) do
    if not known[name] and not drains(keys, name) then strangers = strangers + 1 end
  end
  local alone = attendants + strangers == 0
  local counted = limit == 0 or not alone
  local due = counted and count_due(db, now, tonumber(args[14])) or 0
  local allowed = limit
  if not alone and limit > 0 then
    local all = attendants + strangers + 1
    local side_by_side = math.min(divide_up(due, all), threads)
    allowed = math.min(limit, math.max(divide_up(due, all * PARTS), side_by_side))
    if attends and not insists then
      local equal = divide_up(granted + mine[W_GRANTED] + due, attendants + 1)
      allowed = math.min(allowed, math.max(0, equal - mine[W_GRANTED]))
    end
  end
  local reserved = allowed == 0 and due > 0 and limit > 0
  local claims = grant_chosen(db, busy, worker, now, allowed, args[5], tonumber(args[6]))
  if counted and due == 0 then
    if mine then known[worker] = mine end
    for name, presence in pairs(known) do
      if presence[W_GRANTED] ~= 0 then
        presence[W_GRANTED] = 0
        put_worker(keys, name, presence)
      end
    end
  elseif attends and #claims > 0 then
    mine[W_GRANTED] = mine[W_GRANTED] + #claims
    put_worker(keys, worker, mine)
  end
  return { due, reserved and 1 or 0, 0, has_others, 0, claims }
end

-- request, then for each claim: path, token, worker
local function give_back_all(keys, args)
  local again = answered(keys, args[1])
  if again then return again end
  local db = open(keys)
  for i = 2, #args, 3 do
    local path, token, worker = args[i], args[i + 1], args[i + 2]
    local slot, result = held(db, path, token, worker)
    if result ~= 'lost' then redis.call('HDEL', keys[8], token) end
    if slot then
      slot[TOKEN], slot[NEWER] = 0, false
      local packed = redis.call('HGET', keys[11], worker)
      local presence = packed and cmsgpack.unpack(packed)
      if presence and presence[W_GRANTED] > 0 then
        presence[W_GRANTED] = presence[W_GRANTED] - 1
        put_worker(keys, worker, presence)
      end
    end
  end
  flush(db)
  return answer(keys, args[1], 'released')
end

-- worker, now, the last signs of life that are over, stale, and may be true; 1 if its host drains
local function attend(keys, args)
  local known, lost = attending(keys, args[3], args[5])
  refresh(keys, known, lost, args[1], args[2], args[4])
  return drains(keys, args[1]) and 1 or 0
end

-- worker; 1 if its host drains
local function draining(keys, args)
  return drains(keys, args[1]) and 1 or 0
end

-- names of workers
local function leave(keys, args)
  for _, name in ipairs(args) do redis.call('HDEL', keys[11], name) end
  return 'done'
end

-- the last signs of life that are over, and that may be true; for each worker: name, since, claims, as 0 or 1 whether it
-- attends and whether its host drains
local function known_workers(keys, args)
  local all, list = {}, {}
  for name, presence in pairs((attending(keys, args[1], args[2]))) do all[name] = { presence[W_SINCE], 0, 1 } end
  for _, packed in ipairs(redis.call('HVALS', keys[8])) do
    local lock = cmsgpack.unpack(packed)
    local worker = all[lock[L_WORKER]]
    if not worker then
      worker = { lock[L_GRANTED], 0, 0 }
      all[lock[L_WORKER]] = worker
    end
    worker[2] = worker[2] + 1
    if worker[3] == 0 then worker[1] = least(worker[1], lock[L_GRANTED]) end
  end
  for name, worker in pairs(all) do
    list[#list + 1] = { name, worker[1], worker[2], worker[3], drains(keys, name) and 1 or 0 }
  end
  return list
end

-- host, 1 or 0
local function set_draining(keys, args)
  redis.call(args[2] == '1' and 'SADD' or 'SREM', keys[12], args[1])
  return 'done'
end

local function draining_hosts(keys)
  return redis.call('SMEMBERS', keys[12])
end

-- What there is.

local function sums(keys)
  local sums = redis.call('HMGET', keys[7], MODIFY, MOVE, DELETE, GAP, 'c')
  for i = 1, #sums do sums[i] = sums[i] or '0' end
  local oldest = redis.call('ZRANGE', keys[6], 0, 0)[1]
  sums[#sums + 1] = oldest and string.sub(oldest, 1, 16) or ''
  sums[#sums + 1] = redis.call('HGET', keys[1], 'sequence') or '0'
  return sums
end

-- an identity for a changelog that has none, and the last request of this client that was answered, '' if there is none; 1
-- if the server does not know that any more
local function memory(keys, args)
  redis.call('HSETNX', keys[1], 'identity', args[1])
  local forgot = 0
  if args[2] ~= '' then
    local last = redis.call('GETEX', keys[9], 'EX', REQUEST_SECONDS)
    if not last or string.sub(last, 1, 16) < args[2] then forgot = 1 end
  end
  return { redis.call('HGET', keys[1], 'identity'), redis.call('HGET', keys[1], 'sequence') or '0', forgot }
end

-- where the page begins, how many
local function page(keys, args)
  local db = open(keys)
  local entries = redis.call('ZRANGEBYLEX', keys[3], args[1], '+', 'LIMIT', 0, args[2])
  for i, path in ipairs(entries) do entries[i] = shown(path, get(db, path)) end
  return entries
end

redis.register_function('gabion_changelog_5_record', record)
redis.register_function('gabion_changelog_5_claim', claim)
redis.register_function('gabion_changelog_5_claim_paths', claim_paths)
redis.register_function('gabion_changelog_5_renew', renew)
redis.register_function('gabion_changelog_5_renew_all', renew_all)
redis.register_function('gabion_changelog_5_bury', bury)
redis.register_function('gabion_changelog_5_complete', complete)
redis.register_function('gabion_changelog_5_complete_all', complete_all)
redis.register_function{
  function_name = 'gabion_changelog_5_which_are_mine', callback = which_are_mine, flags = { 'no-writes' } }
redis.register_function('gabion_changelog_5_release', release)
redis.register_function('gabion_changelog_5_memory', memory)
redis.register_function('gabion_changelog_5_claim_share', claim_share)
redis.register_function('gabion_changelog_5_give_back', give_back_all)
redis.register_function('gabion_changelog_5_attend', attend)
redis.register_function('gabion_changelog_5_leave', leave)
redis.register_function('gabion_changelog_5_set_draining', set_draining)
redis.register_function{ function_name = 'gabion_changelog_5_is_draining', callback = draining, flags = { 'no-writes' } }
redis.register_function{
  function_name = 'gabion_changelog_5_draining_hosts', callback = draining_hosts, flags = { 'no-writes' } }
redis.register_function{
  function_name = 'gabion_changelog_5_known_workers', callback = known_workers, flags = { 'no-writes' } }
redis.register_function{ function_name = 'gabion_changelog_5_workers', callback = workers, flags = { 'no-writes' } }
redis.register_function{ function_name = 'gabion_changelog_5_mine', callback = mine, flags = { 'no-writes' } }
redis.register_function{ function_name = 'gabion_changelog_5_sums', callback = sums, flags = { 'no-writes' } }
redis.register_function{ function_name = 'gabion_changelog_5_page', callback = page, flags = { 'no-writes' } }
