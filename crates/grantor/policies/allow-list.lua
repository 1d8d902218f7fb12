-- allow-list: who is on the list may send; nobody else.
--
-- Parameters:
--   file      prefixes of sources, one a line, both families; with `rates`, each followed by its rate in KiB/s
--   rates     true: the rate stands in the file (default false)
--   rate      KiB/s for each flow, where the file does not say (1024)
--   expire    seconds that a grant holds (300); it is renewed after three quarters of that
--   decline   seconds that a refusal holds (60)
--
-- What it is good for: a service whose clients are known, such as a VPN or partners' networks.
-- What it does not do: addresses are not proven. Who can send with an allowed source address is allowed. Its flows are held to the rate
-- each, not together.

local RATES = parameter("rates", false)
local RATE = parameter("rate", 1024, 1, 4294967295)
local EXPIRE = parameter("expire", 300, 1, 86400)

signature("source", "destination")
field("listed", lpm(parameter("file")), "source")

local allowed = granted { rate = RATE, expire = EXPIRE }
local refused = declined { expire = parameter("decline", 60, 1, 86400) }

function decide(q)
	local listed = q.listed
	if not listed then
		return refused
	end
	if not RATES then
		return allowed
	end
	if listed == 0 then
		return refused -- a rate of 0 takes a part out of a larger prefix
	end
	return granted { rate = listed, expire = EXPIRE }
end
