-- source-authentication: a source gets its full rate only when it has gone on as one does whose answers arrive.
--
--   SYN --> trial: a small rate for a few seconds --> a packet with ACK, some time later --> full grant
--
-- Parameters:
--   rate      KiB/s for each flow that has passed (1024)
--   expire    seconds that a full grant holds (300)
--   trial     KiB/s during the trial (8): enough for a handshake and the first request
--   seconds   seconds that the trial holds (5)
--   wait      milliseconds that must lie between SYN and ACK at least (20)
--   trials    trials per second that each worker begins (1000); beyond them a SYN stays undecided, and asks again with rising priority
--   others    KiB/s for flows that are not TCP (0: declined)
--   decline   seconds that a refusal holds (30)
--   sources   flows that are remembered by each worker (65536)
--
-- What it shows: that somebody sends for this address a SYN, waits, and goes on with a segment that belongs to an open connection, and is
-- patient enough to do so for each address that it claims. A flood that makes up a new source for each packet, or only sends SYNs, never gets
-- more than trials, and those are held to `trials * trial * seconds` KiB altogether.
-- What it does not show: that the source has received anything. The Grantor sees one direction only and does not know the server's
-- sequence number, so an attacker who keeps state for each address that it claims, and sends an ACK with any number after the wait, passes (the
-- server then refuses its segments, but the path carries them). To prove an address, something must be sent to it and come back: that is the
-- server's part (SYN cookies), or a proxy's.

local EXPIRE = parameter("expire", 300, 1, 86400)
local SECONDS = parameter("seconds", 5, 1, 3600)
local WAIT = parameter("wait", 20, 0, 10000) / 1000
local TRIALS = parameter("trials", 1000, 1, 1000000)
local OTHERS = parameter("others", 0, 0, 4294967295)
local TCP, SYN_ACK, SYN, ACK = 6, 0x12, 0x02, 0x10

signature("source", "destination", "protocol", "dscp", "fragment", "tcp_flags")

local flows = expiring { entries = parameter("sources", 65536, 8, 1048576), idle = EXPIRE * 2, keep = "flows" }
local full = granted { rate = parameter("rate", 1024, 1, 4294967295), expire = EXPIRE }
-- It asks again with the first packet behind the wait: by then the handshake should be over.
local trial = granted {
	rate = parameter("trial", 8, 1, 4294967295),
	expire = SECONDS,
	renew = math.ceil(WAIT * 1000),
	step = math.ceil(WAIT * 1000),
}
local refused = declined { expire = parameter("decline", 30, 1, 86400) }
local other = if OTHERS > 0 then granted { rate = OTHERS, expire = EXPIRE } else refused
local later = undecided()

-- Trials that may still begin: `TRIALS` a second, a second's worth at once.
local left, since = TRIALS, nil
local function may_try(now)
	left = math.min(TRIALS, left + math.max(0, now - (since or now)) * TRIALS)
	since = now
	if left < 1 then
		return false
	end
	left -= 1
	return true
end

function decide(q)
	if q.protocol ~= TCP then
		return other
	end
	local flow = q.source .. q.destination
	local began, passed = flows:get(flow)
	if passed == 1 then
		return full
	end
	if began and began > q.now then
		began = nil -- the clock was set back
	end
	local flags = bit32.band(q.tcp_flags, SYN_ACK)
	if q.fragment == 2 then
		return refused -- nothing can be told of it
	elseif flags == SYN then
		if began and q.now - began < SECONDS then
			return trial -- the SYN again: the trial is not prolonged
		elseif not may_try(q.now) then
			return later
		end
		flows:set(flow, q.now, 0)
		return trial
	elseif flags == ACK and began and q.now - began >= WAIT then
		flows:set(flow, began, 1)
		return full
	elseif began and q.now - began < SECONDS then
		return trial
	end
	return refused
end
