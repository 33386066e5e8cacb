-- One decision over one user's account, all or nothing: what account.py decides in memory, operation by operation, in doubles,
-- so that both come to the same. Times are microseconds of the server's clock, as gateways' clocks differ.
--
-- `rules` stands before this, as redis_script.py writes it.
--
-- KEYS  1 account (hash)  2 calls (sorted set: id by expiry)  3 held (sorted set: "id:tokens" by expiry)
-- ARGV  1 operation  2 now in µs, "" = the server's  3 base  4 floor  5 burst_s  6 tokens/min, "" = no limit
--       7 whole tokens/min  8 calls at once, "" = no limit, then the operation's own
-- Returns {verdict, requests' level, rate, burst, tokens' level or "", calls, levels of signals}.

local op, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local base, floor, burst_s = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local per_min, whole, max_calls = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local ACCOUNT, CALLS, HELD = KEYS[1], KEYS[2], KEYS[3]
local FORGET_S, LEASE_US, HOLD_US = rules.forget_s, rules.lease_s * 1000000, rules.hold_s * 1000000

local function text(number) return string.format('%.17g', number) end
local function whole_text(number) return string.format('%.0f', number) end

-- What a clock wrote that was ahead of this one (it was set back, or another server took over) counts as of now: until a clock
-- is there again nothing would refill, fade or lapse. Less than that counts as the same moment, so that none is counted twice.
local function met(field, at)
  if at <= now + rules.ahead_us then return at end
  redis.call('HSET', ACCOUNT, field, whole_text(now))
  return now
end

local function split(packed)
  local words = {}
  for word in string.gmatch(packed or '', '%S+') do words[#words + 1] = word end
  return words
end

-- Standing (standing.py)

local function nil_or(level) if level >= rules.nil_level then return level end return 0 end

local function decayed(level, elapsed_s, half_life_s)
  if level == 0 then return 0 end
  return nil_or(level * 2 ^ (-elapsed_s / half_life_s))
end

local function load_standing()
  local found = redis.call('HMGET', ACCOUNT, 'seen', 'levels', 'recent', 'usual', 'fingerprints', 'regions')
  local seen = met('seen', tonumber(found[1] or now))
  local elapsed_s = math.max(0, now - seen) / 1000000
  local levels, words = {}, split(found[2])
  for i = 1, #rules.half_lives do
    levels[i] = decayed(tonumber(words[i] or 0), elapsed_s, rules.half_lives[i])
  end
  return {
    seen = math.max(now, seen),
    levels = levels,
    recent = decayed(tonumber(found[3] or 0), elapsed_s, rules.recent_half_life_s),
    usual = decayed(tonumber(found[4] or 0), elapsed_s, rules.usual_half_life_s),
    fingerprints = split(found[5]),
    regions = split(found[6]),
  }
end

local function levels_text(standing)
  local words = {}
  for i, level in ipairs(standing.levels) do words[i] = text(level) end
  return table.concat(words, ' ')
end

local function save_standing(standing)
  redis.call('HSET', ACCOUNT, 'seen', whole_text(standing.seen), 'levels', levels_text(standing),
    'recent', text(standing.recent), 'usual', text(standing.usual),
    'fingerprints', table.concat(standing.fingerprints, ' '), 'regions', table.concat(standing.regions, ' '))
  redis.call('EXPIRE', ACCOUNT, FORGET_S)
end

local function set_level(standing, i, level)
  local weight = rules.weights[i]
  if weight == 0 then level = 0 else level = math.min(level, rules.max_risk / weight) end
  standing.levels[i] = nil_or(level)
end

local function add_level(standing, i, amount) set_level(standing, i, standing.levels[i] + amount) end

local function meet(standing, i, known, value)
  local is_new, kept = 0, {}
  if #known > 0 then is_new = 1 end
  for _, name in ipairs(known) do
    if name == value then is_new = 0 else kept[#kept + 1] = name end
  end
  kept[#kept + 1] = value
  while #kept > rules.max_known do table.remove(kept, 1) end
  add_level(standing, i, is_new)
  return kept
end

local function risk_of(standing)
  local total = 0
  for i, level in ipairs(standing.levels) do total = total + level * rules.weights[i] end
  return math.min(rules.max_risk, total)
end

-- Buckets (rate.py)

local function rate_of(standing)
  local risk = risk_of(standing)
  local rate = math.min(base, math.max(floor, base * (1 - rules.risk_factor * risk)))
  return rate, math.max(rules.min_burst, rate * burst_s)
end

local function load_bucket(name, rate, burst)
  local found = redis.call('HMGET', ACCOUNT, name, name .. '_at')
  if not found[1] then return {name = name, level = burst, at = now, burst = burst, rate = rate} end
  local at = met(name .. '_at', tonumber(found[2]))
  local level = math.min(burst, tonumber(found[1]) + math.max(0, now - at) / 1000000 * rate)
  return {name = name, level = level, at = math.max(now, at), burst = burst, rate = rate}
end

local function save_bucket(bucket)
  redis.call('HSET', ACCOUNT, bucket.name, text(bucket.level), bucket.name .. '_at', whole_text(bucket.at),
    bucket.name .. '_rate', text(bucket.rate), bucket.name .. '_burst', text(bucket.burst))
  redis.call('EXPIRE', ACCOUNT, FORGET_S)
end

-- As it was left, neither refilled nor clipped: what an answer tells after the first decision of a call.
local function left_bucket(name)
  local found = redis.call('HMGET', ACCOUNT, name, name .. '_at', name .. '_rate', name .. '_burst')
  if not found[1] then
    local rate, burst = math.min(base, math.max(floor, base)), 0
    burst = math.max(rules.min_burst, rate * burst_s)
    return {name = name, level = burst, at = now, rate = rate, burst = burst}
  end
  return {name = name, level = tonumber(found[1]), at = tonumber(found[2]), rate = tonumber(found[3]),
    burst = tonumber(found[4])}
end

local function budget() return load_bucket('tokens', per_min / 60, per_min) end

local function num_calls()
  local latest = now + LEASE_US
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', CALLS, whole_text(latest + rules.ahead_us), '+inf')) do
    redis.call('ZADD', CALLS, whole_text(latest), id)
  end
  redis.call('ZREMRANGEBYSCORE', CALLS, '-inf', whole_text(now))
  return redis.call('ZCARD', CALLS)
end

local function leave(id) redis.call('ZREM', CALLS, id) end

local function answer(verdict, requests, standing)
  local tokens = ''
  if per_min then tokens = text(budget().level) end
  local calls = 0
  if max_calls then calls = num_calls() end
  return {verdict, text(requests.level), text(requests.rate), text(requests.burst), tokens, calls,
    standing and levels_text(standing) or ''}
end

-- Decisions (account.py)

local decisions = {}

function decisions.admit(id)
  local standing = load_standing()
  standing.recent, standing.usual = standing.recent + 1, standing.usual + 1
  local recent_per_s = standing.recent * rules.ln2 / rules.recent_half_life_s
  local usual_per_s = standing.usual * rules.ln2 / rules.usual_half_life_s
  if recent_per_s > math.max(rules.burst_min_per_s, rules.burst_factor * usual_per_s) then
    add_level(standing, rules.signals.burst, 1)
  end
  save_standing(standing)
  local requests = load_bucket('requests', rate_of(standing))
  local verdict = 'admitted'
  if requests.level < 1 then
    verdict = 'rate'
  elseif max_calls and num_calls() >= max_calls then
    verdict = 'calls'
  else
    requests.level = requests.level - 1
    if max_calls then
      redis.call('ZADD', CALLS, whole_text(now + LEASE_US), id)
      redis.call('EXPIRE', CALLS, rules.lease_s * 2)
    end
  end
  save_bucket(requests)
  return answer(verdict, requests, standing)
end

function decisions.reserve(id, amount)
  local requests, verdict = left_bucket('requests'), 'granted'
  local wanted, tokens = tonumber(amount), budget()
  if wanted > whole then
    verdict = 'never'
  elseif tokens.level < math.min(wanted, tokens.burst) then
    verdict = 'later'
  else
    tokens.level = math.min(tokens.burst, tokens.level - wanted)
    redis.call('ZREMRANGEBYSCORE', HELD, '-inf', whole_text(now))
    redis.call('ZADD', HELD, whole_text(now + HOLD_US), id .. ':' .. amount)
    redis.call('EXPIRE', HELD, rules.hold_s * 2)
  end
  save_bucket(tokens)
  if verdict ~= 'granted' then
    leave(id)
    requests.level = math.min(requests.burst, requests.level + 1)
    save_bucket(requests)
  end
  return answer(verdict, requests)
end

function decisions.settle(id, amount, used)
  leave(id)
  if amount ~= '' and per_min and redis.call('ZREM', HELD, id .. ':' .. amount) == 1 then
    local tokens = budget()
    tokens.level = math.min(tokens.burst, tokens.level + (tonumber(amount) - tonumber(used)))
    save_bucket(tokens)
  end
  return {'settled'}
end

function decisions.note(kind, value)
  local standing, signals = load_standing(), rules.signals
  if kind == 'failed_auth' or kind == 'malformed' then
    add_level(standing, signals[kind], 1)
  elseif kind == 'abandoned' then
    add_level(standing, signals.abandoned, 1)
  elseif kind == 'finished' then
    set_level(standing, signals.abandoned, math.max(0, standing.levels[signals.abandoned] - 1))
  elseif value ~= '' and kind == 'fingerprint' then
    standing.fingerprints = meet(standing, signals.new_fingerprint, standing.fingerprints, value)
  elseif value ~= '' and kind == 'region' then
    standing.regions = meet(standing, signals.new_region, standing.regions, value)
  end
  save_standing(standing)
  return {'noted'}
end

function decisions.show()
  local standing = load_standing()
  return answer('shown', load_bucket('requests', rate_of(standing)), standing)
end

function decisions.renew(...)
  for _, id in ipairs({...}) do redis.call('ZADD', CALLS, 'XX', whole_text(now + LEASE_US), id) end
  redis.call('EXPIRE', CALLS, rules.lease_s * 2)
  return {'renewed'}
end

return decisions[op](unpack(ARGV, 9))
