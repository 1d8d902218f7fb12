-- deny-list: who is on the list may not send; everybody else may.
--
-- Parameters:
--   file      prefixes of sources, one a line, both families; half a million and more are fine
--   rate      KiB/s for each flow that is not on the list (1024)
--   expire    seconds that a grant holds (300); it is renewed after three quarters of that
--   decline   seconds that a refusal holds (600): also how long a flow that is taken off the list stays out, if nothing is revoked
--
-- What it is good for: published lists of compromised hosts and of networks that never send anything wanted.
-- What it does not do: it says nothing about who is not on the list yet. Put a small `rate` beside it, or another policy.

signature("source", "destination")
field("listed", lpm(parameter("file")), "source")

local allowed = granted {
	rate = parameter("rate", 1024, 1, 4294967295),
	expire = parameter("expire", 300, 1, 86400),
}
local refused = declined { expire = parameter("decline", 600, 1, 86400) }

function decide(q)
	return if q.listed then refused else allowed
end
