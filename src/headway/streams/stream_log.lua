-- A log of streams in Redis: each call is one of the functions below, so that it happens whole or not at all. The rules are
-- those of table.py; tests hold both to one contract. Times are the caller's, in milliseconds.
--
-- KEYS: 1 the stream, 2 its events (a list: acked + 1 to last), 3 its progress, 4 open streams by the end of their lease,
-- 5 streams that are over and 6 those that are gone by when that ends, 7 what is kept of all, 8 where news go, 9 how many
-- owners have streams, whose each is ("of ID"), and what is kept of whom ("events OWNER", "bytes OWNER", "streams OWNER")
-- ARGV: 1 the function, 2 who calls, then what the function takes
-- An event is four bytes of its size, as limits count it, and the event.

local stream, events, progress, open, over, gone, total, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[9]
local id = string.match(stream, '(%x+)$')

local function get(field) return redis.call('HGET', stream, field) end
local function number(field) return tonumber(get(field) or 0) end
local function of_all(field) return tonumber(redis.call('HGET', total, field) or 0) end
local function count(num_events, num_bytes, num_streams) -- "+ 0": Lua writes -0 as "-0", which is no integer to Redis
  redis.call('HINCRBY', total, 'events', num_events + 0)
  redis.call('HINCRBY', total, 'bytes', num_bytes + 0)
  local all_left = redis.call('HINCRBY', total, 'streams', num_streams + 0)
  if num_streams < 0 and all_left <= 0 then redis.call('DEL', total) end -- what evicted streams kept is forgotten, too
  local owner = redis.call('HGET', owners, 'of ' .. id)
  if not owner then return end
  redis.call('HINCRBY', owners, 'events ' .. owner, num_events + 0)
  redis.call('HINCRBY', owners, 'bytes ' .. owner, num_bytes + 0)
  local left = redis.call('HINCRBY', owners, 'streams ' .. owner, num_streams + 0)
  if num_streams > 0 and left == 1 then redis.call('HINCRBY', owners, 'owners', 1) end
  if num_streams < 0 then
    redis.call('HDEL', owners, 'of ' .. id)
    if left <= 0 then
      redis.call('HDEL', owners, 'events ' .. owner, 'bytes ' .. owner, 'streams ' .. owner)
      if redis.call('HINCRBY', owners, 'owners', -1) <= 0 then redis.call('DEL', owners) end
    end
  end
end
local function of_owner(owner, field) return tonumber(redis.call('HGET', owners, field .. ' ' .. owner) or 0) end
local function num_owners(owner) -- himself included
  local found = tonumber(redis.call('HGET', owners, 'owners') or 0)
  return of_owner(owner, 'streams') > 0 and found or found + 1
end
local function has_room(owner, field, more, bound)
  local all = of_all(field) + more
  if all > bound then return false end
  return all <= 0.75 * bound or (of_owner(owner, field) + more) * num_owners(owner) <= bound
end
local function tell(what) redis.call('PUBLISH', KEYS[8], ARGV[2] .. ' ' .. what .. ' ' .. id) end
local function boot() return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end
local function is_held(fence) return get('state') == 'open' and get('fence') == fence end
local function hold(due)
  redis.call('HSET', stream, 'due', due)
  redis.call('ZADD', open, due, id)
end
local function forget_names() -- of a stream that a server short of memory evicted
  if redis.call('ZREM', open, id) + redis.call('ZREM', over, id) > 0 then
    local left, num_bytes = redis.call('LRANGE', events, 0, -1), 0
    for _, event in ipairs(left) do num_bytes = num_bytes + struct.unpack('>I4', event) end
    count(-#left, -num_bytes, -1)
  end
  redis.call('DEL', events, progress)
end
local function drop_events()
  count(-(number('last') - number('acked')), -number('bytes'), 0)
  redis.call('DEL', events)
  redis.call('HSET', stream, 'bytes', 0)
end

local calls = {}

-- owner, created, meta, due, progress, num_bytes, three limits, events...
function calls.create(owner, created, meta, due, piece, num_bytes, max_streams, max_all_events, max_all_bytes, ...)
  local added = {...}
  num_bytes = tonumber(num_bytes)
  if get('state') then return {'exists'} end
  if not has_room(owner, 'streams', 1, tonumber(max_streams))
    or not has_room(owner, 'events', #added, tonumber(max_all_events))
    or not has_room(owner, 'bytes', #meta + num_bytes, tonumber(max_all_bytes)) then
    return {'full'}
  end
  redis.call('HSET', stream, 'owner', owner, 'created', created, 'meta', meta, 'epoch', 1, 'state', 'open', 'acked', 0,
    'last', #added, 'bytes', num_bytes, 'fence', 1, 'run', boot())
  redis.call('HSET', owners, 'of ' .. id, owner)
  count(#added, #meta + num_bytes, 1)
  for _, event in ipairs(added) do redis.call('RPUSH', events, event) end
  if piece ~= '' then redis.call('RPUSH', progress, piece) end
  hold(due)
  return {'ok'}
end

-- fence, nonce, after, due, end or '', progress, num_bytes, four limits, events...
function calls.append(fence, nonce, after, due, ending, piece, num_bytes, max_events, max_bytes, max_all_events, max_all_bytes, ...)
  local added = {...}
  if get('nonce') == nonce then return {'ok', number('last')} end -- asked again because the answer was lost
  if not is_held(fence) then return {'lost'} end
  local acked, last, kept_bytes = number('acked'), number('last'), number('bytes')
  if tonumber(after) ~= last then return {'stale'} end
  num_bytes = tonumber(num_bytes)
  if ending == '' then
    local kept = last - acked
    if kept > 0 and (kept + #added > tonumber(max_events) or kept_bytes + num_bytes > tonumber(max_bytes))
      or not has_room(get('owner'), 'events', #added, tonumber(max_all_events))
      or not has_room(get('owner'), 'bytes', num_bytes, tonumber(max_all_bytes)) then
      return {'full'}
    end
  end
  for _, event in ipairs(added) do redis.call('RPUSH', events, event) end
  count(#added, num_bytes, 0)
  redis.call('HSET', stream, 'last', last + #added, 'bytes', kept_bytes + num_bytes, 'nonce', nonce)
  if ending == '' then
    if piece ~= '' then redis.call('RPUSH', progress, piece) end
    hold(due)
  else
    redis.call('HSET', stream, 'state', ending, 'due', due)
    redis.call('ZREM', open, id)
    redis.call('ZADD', over, due, id)
    redis.call('DEL', progress)
  end
  tell('news')
  return {'ok', last + #added}
end

function calls.find()
  return redis.call('HMGET', stream, 'owner', 'created', 'meta', 'epoch', 'state', 'acked', 'last')
end

-- after, limit
function calls.read(after, limit)
  local found = redis.call('HMGET', stream, 'epoch', 'state', 'acked', 'last')
  local first = tonumber(after) - tonumber(found[3] or 0)
  if first < 0 then return {found, {}} end
  return {found, redis.call('LRANGE', events, first, first + tonumber(limit) - 1)}
end

-- epoch, seq
function calls.ack(epoch, seq)
  local state, acked = get('state'), number('acked')
  if not state then return {'unknown'} end
  if state == 'gone' or get('epoch') ~= epoch then return {'stale'} end
  seq = tonumber(seq)
  if seq > number('last') then return {'never'} end
  if seq <= acked then return {'ok'} end
  local num_bytes = 0
  for _, event in ipairs(redis.call('LRANGE', events, 0, seq - acked - 1)) do
    num_bytes = num_bytes + struct.unpack('>I4', event)
  end
  redis.call('LTRIM', events, seq - acked, -1)
  redis.call('HSET', stream, 'acked', seq, 'bytes', number('bytes') - num_bytes)
  count(acked - seq, -num_bytes, 0)
  tell('room')
  return {'ok'}
end

-- fence, due
function calls.renew(fence, due)
  if not is_held(fence) then return {'lost'} end
  hold(due)
  return {'ok'}
end

-- now, due
function calls.take_over(now, due)
  local state = get('state')
  if not state then forget_names() end
  if state ~= 'open' or number('due') > tonumber(now) then return {'held'} end
  local run = boot()
  if get('run') ~= run then -- another server, or a restarted one: it may have lost the last events
    redis.call('HINCRBY', stream, 'epoch', 1)
    redis.call('HSET', stream, 'run', run)
    tell('news')
  end
  hold(due)
  return {'ok', redis.call('HINCRBY', stream, 'fence', 1), calls.find(), redis.call('LRANGE', progress, 0, -1)}
end

-- fence
function calls.new_epoch(fence)
  if not is_held(fence) then return {'lost'} end
  drop_events()
  redis.call('DEL', progress)
  redis.call('HSET', stream, 'acked', 0, 'last', 0)
  tell('news')
  tell('room')
  return {'ok', redis.call('HINCRBY', stream, 'epoch', 1)}
end

-- due, now or '': only what is over by then
function calls.remove(due, now)
  local state = get('state')
  if not state then forget_names() end
  if not state or state == 'gone' then return {'no'} end
  if now ~= '' and (state == 'open' or number('due') > tonumber(now)) then return {'no'} end
  drop_events()
  count(0, -#get('meta'), -1)
  redis.call('DEL', progress)
  redis.call('HSET', stream, 'state', 'gone', 'meta', '', 'acked', number('last'), 'due', due)
  redis.call('ZREM', open, id)
  redis.call('ZREM', over, id)
  redis.call('ZADD', gone, due, id)
  tell('news')
  tell('room')
  return {'ok'}
end

function calls.forget()
  if get('state') == 'gone' then redis.call('DEL', stream) end
  redis.call('ZREM', gone, id)
  return {'ok'}
end

local arguments = {}
for i = 3, #ARGV do arguments[i - 2] = ARGV[i] end
return calls[ARGV[1]](unpack(arguments))
