-- aimd: every flow's rate grows by a step with each renewal, and is cut by a factor when its destination has promised more than it can take
-- (additive increase, multiplicative decrease: flows that share a destination come to equal rates; Chiu and Jain 1989).
--
-- Parameters:
--   capacity  KiB/s that one destination can take from the flows of one worker (12800, 100 Mbit/s): divide it by the number of workers
--   start     KiB/s that a flow begins with (64)
--   step      KiB/s that it gains with each renewal (64)
--   factor    what its rate is multiplied with when the destination is overbooked (0.5)
--   least     KiB/s below which it does not fall (8)
--   most      KiB/s beyond which it does not rise (12800)
--   expire    seconds that a grant holds (20); it is renewed after three quarters of that
--   flows     flows that are remembered by each worker (65536)
--   targets   destinations that are (4096)
--
-- How a destination's load is known: every flow that goes on asks for renewal once in three quarters of `expire`. So the sum of the
-- rates that were given in one such round is what is promised now; it takes a round to notice that flows have ended. A flow counts once in a round,
-- however often it asks, as after a revocation, and from the second in which it does, so sources that are made up, each for a packet, cut nobody's rate.
-- What it is good for: sharing a destination among flows that do not slow down by themselves, without deciding who is good.
-- What it does not do: it shares by flow, not by user: who has more addresses gets more. What it measures is what it has granted, not what is
-- sent: flows that use less than they have hold the others down until the step of the next round.

local CAPACITY = parameter("capacity", 12800, 1, 4294967295)
local START = parameter("start", 64, 1, 4294967295)
local STEP = parameter("step", 64, 0, 4294967295)
local FACTOR = parameter("factor", 0.5, 0.01, 1)
local LEAST = parameter("least", 8, 1, 4294967295)
local MOST = parameter("most", 12800, 1, 4294967295)
local EXPIRE = parameter("expire", 20, 2, 3600)
local ROUND = EXPIRE * 0.75

signature("source", "destination")

local flows = expiring { entries = parameter("flows", 65536, 8, 1048576), idle = EXPIRE * 2, keep = "flows" }
local targets = expiring { entries = parameter("targets", 4096, 8, 1048576), idle = EXPIRE * 4, keep = "targets" }

local function answer(rate)
	return granted { rate = rate, expire = EXPIRE, renew = ROUND * 1000, step = 1000 }
end

function decide(q)
	local flow = q.source .. q.destination
	local rate, decided, round = flows:get(flow)
	if rate and q.now >= decided and q.now - decided < ROUND / 2 then
		return answer(rate) -- asked again before the answer was there: nothing new
	end
	-- Of the destination: when the round began, what was given in it, what was given in the one before.
	local began, given, before = targets:get(q.destination)
	if not began or q.now < began or q.now - began >= 2 * ROUND then
		began, given, before = q.now, 0, 0
	elseif q.now - began >= ROUND then
		began, given, before = q.now, 0, given
	end
	if rate and round == began then
		return answer(rate) -- it has been counted in this round
	end
	local is_known = rate ~= nil
	if not rate then
		rate = START
	elseif math.max(before, given) > CAPACITY then
		rate = math.max(LEAST, rate * FACTOR)
	else
		rate = math.min(MOST, rate + STEP)
	end
	flows:set(flow, rate, q.now, began)
	targets:set(q.destination, began, if is_known then given + rate else given, before)
	return answer(rate)
end
