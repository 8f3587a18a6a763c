
-- The fourth part of the library: the journal. Its records are in a stream, KEYS[10], with their positions as numbers;
-- counters has the last position (journal), the first one (journal_first) and the bytes of all records (journal_bytes).
-- A record is its name of 16 bytes and its content.

local READ_BYTES = 4194304

local function last_of(keys)
  local last = redis.call('XREVRANGE', keys[10], '+', '-', 'COUNT', 1)[1]
  if not last then return '' end
  return string.match(last[1], '^%d+') .. ':' .. string.sub(last[2][2], 1, 16)
end

-- request, '' or what the last record has to be ('=' for none, '=POSITION:NAME'), record
local function append(keys, args)
  local again = answered(keys, args[1])
  if again then return again end
  if args[2] ~= '' and args[2] ~= '=' .. last_of(keys) then return answer(keys, args[1], 'no') end
  local position = string.format('%.0f', redis.call('HINCRBY', keys[1], 'journal', 1))
  redis.call('XADD', keys[10], position .. '-0', 'r', args[3])
  redis.call('HINCRBY', keys[1], 'journal_bytes', #args[3])
  return answer(keys, args[1], position)
end

-- position of the first record to give, '' for the beginning
local function read(keys, args)
  local from = args[1]
  if from == '' then from = redis.call('HGET', keys[1], 'journal_first') or '1' end
  local found, bytes, page = { from }, 0, 16
  from = from .. '-0'
  while true do
    local records = redis.call('XRANGE', keys[10], from, '+', 'COUNT', page)
    for _, record in ipairs(records) do
      bytes = bytes + #record[2][2]
      found[#found + 1] = string.match(record[1], '^%d+')
      found[#found + 1] = record[2][2]
      if bytes >= READ_BYTES then return found end
      from = '(' .. record[1]
    end
    if #records < page then return found end
  end
end

-- position, name
local function begin_at(keys, args)
  local record = redis.call('XRANGE', keys[10], args[1] .. '-0', args[1] .. '-0')[1]
  if not record or string.sub(record[2][2], 1, 16) ~= args[2] then return 'no' end
  redis.call('HSET', keys[1], 'journal_first', args[1])
  local dropped = 0
  while true do
    local records = redis.call('XRANGE', keys[10], '-', '(' .. args[1] .. '-0', 'COUNT', 64)
    if #records == 0 then break end
    local ids = {}
    for i, old in ipairs(records) do
      ids[i] = old[1]
      dropped = dropped + #old[2][2]
    end
    redis.call('XDEL', keys[10], unpack(ids))
  end
  -- Lua has a zero below zero.
  if dropped > 0 then redis.call('HINCRBY', keys[1], 'journal_bytes', string.format('%.0f', -dropped)) end
  return 'done'
end

local function forget_all(keys)
  for i, key in ipairs(keys) do
    if i ~= 9 then redis.call('DEL', key) end
  end
  return 'done'
end

local function size(keys)
  return redis.call('HGET', keys[1], 'journal_bytes') or '0'
end

redis.register_function('gabion_changelog_5_append', append)
redis.register_function('gabion_changelog_5_begin_at', begin_at)
redis.register_function('gabion_changelog_5_forget_all', forget_all)
redis.register_function{ function_name = 'gabion_changelog_5_read', callback = read, flags = { 'no-writes' } }
redis.register_function{ function_name = 'gabion_changelog_5_size', callback = size, flags = { 'no-writes' } }
