-- as-reputation: sources are judged by the autonomous system that they are in, and systems by what their flows have come to.
--
-- For every system two numbers are kept, which fade with a half-life: flows that were granted and never came back (`missed`), and flows that
-- lived long enough to renew their grant (`kept`). Its reputation is the mean of the Beta distribution that these observations leave of the prior:
-- (kept + GOOD) / (kept + missed + GOOD + BAD). A flow of a reported source counts as missed, whatever it does, once while it is remembered. The rate
-- is the reputation's part of `rate`; below `threshold` the system is declined. Who is declined could not come back, so that is no mark against the
-- system: what was seen fades, and a few are let in again to be seen.
--
-- Parameters:
--   file       prefixes with their AS numbers (a table of origins; text or MRT)
--   column     "value" for `prefix number`, "origin_as" for MRT and four columns ("value")
--   reported   prefixes of sources that somebody has complained of (none)
--   rate       KiB/s for each flow of a system with the best reputation (1024)
--   threshold  reputation below which a system is declined (0.2)
--   half_life  seconds after which what was seen counts half (600)
--   good, bad  the prior, in flows: how a system is seen that nothing is known of (8 and 2)
--   expire     seconds that a grant holds (60)
--   decline    seconds that a refusal holds (30)
--   flows      flows that are remembered by each worker (65536)
--   systems    systems that are (16384)
--
-- What it is good for: floods that come from a few networks, or that make up sources in some: those lose their standing within seconds, the
-- others keep theirs. Sources in no prefix are one system, number 0.
-- What it does not do: a system is punished for what others do in its name, if sources can be made up (see source-authentication), and the
-- innocent with their neighbors. Bots that renew look good until somebody reports them. Each worker learns by itself.

local RATE = parameter("rate", 1024, 1, 4294967295)
local THRESHOLD = parameter("threshold", 0.2, 0, 1)
local HALF_LIFE = parameter("half_life", 600, 1, 1000000)
local GOOD = parameter("good", 8, 0.001, 1000000)
local BAD = parameter("bad", 2, 0.001, 1000000)
local EXPIRE = parameter("expire", 60, 1, 86400)
local RENEW = 2

signature("source", "destination", "dscp")
field("system", lpm(parameter("file"), parameter("column", "value")), "source")
local reported = parameter("reported", "")
if reported ~= "" then
	field("reported", lpm(reported), "source")
end

local flows = expiring { entries = parameter("flows", 65536, 8, 1048576), idle = EXPIRE * 2, keep = "flows" }
local systems = expiring { entries = parameter("systems", 16384, 8, 1048576), idle = HALF_LIFE * 10, keep = "systems" }
local refused = declined { expire = parameter("decline", 30, 1, 86400) }

function decide(q)
	local system = q.system or 0
	local kept, missed, seen = systems:get(system)
	if kept then
		local left = 0.5 ^ (math.max(0, q.now - seen) / HALF_LIFE) -- clocks are set back, too
		kept *= left
		missed *= left
	else
		kept, missed = 0, 0
	end
	local flow = q.source .. q.destination
	local state = flows:get(flow) -- 1: has been counted as missed; 2: has come back
	if not state then
		missed += 1
	elseif state == 1 and q.dscp == RENEW and not q.reported then
		missed = math.max(0, missed - 1)
		kept += 1
		state = 2
	end
	local reputation = (kept + GOOD) / (kept + missed + GOOD + BAD)
	local is_declined = reputation < THRESHOLD
	if is_declined and not state and not q.reported then
		return refused -- and nothing is counted: it has had no chance
	end
	flows:set(flow, state or 1)
	systems:set(system, kept, missed, q.now)
	if q.reported or is_declined then
		return refused
	end
	return granted { rate = math.max(1, RATE * reputation), expire = EXPIRE }
end
