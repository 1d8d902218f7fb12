-- web: web servers get what belongs to the web, and the Gatekeeper itself sees to that for every packet, by the flow program `web`.
--
-- Parameters:
--   servers    prefixes of the servers (none: every destination)
--   rate       KiB/s for each flow (2048)
--   secondary  KiB/s within that for what opens connections, for fragments and ICMP (a twentieth of rate)
--   expire     seconds that a decision holds (300)
--   decline    seconds that a refusal holds (60): where `servers` are given
--   direct     true: packets go past the Grantor (false)
--   index      the program's number at the Gatekeeper (3)
--
-- What a flow may send: TCP to ports 80 and 443, errors and echo of ICMP. All else is dropped at the Gatekeeper: see bpf/flow/web.bpf.c. Here only the
-- first packet is judged. Where that is something else it is dropped, and the flow gets the program all the same: a flow is a source and a
-- destination, and whoever tries HTTP/3 first may go on by TCP. Who asks for another destination than a server is declined.
-- What it does not do: HTTP/3 comes over UDP and is dropped; clients go back to TCP.

local TCP, ICMP, ICMPV6 = 6, 1, 58
local EXPIRE = parameter("expire", 300, 1, 86400)
local RATE = parameter("rate", 2048, 1, 4294967295)

signature("source", "destination", "protocol", "destination_port", "fragment")

local servers = parameter("servers", "")
if servers ~= "" then
	field("server", lpm(servers), "destination")
end

local index, cookie = program_of("web", {
	rate = RATE,
	secondary = parameter("secondary", math.max(1, RATE // 20), 1, 4294967295),
	renew = EXPIRE * 750,
	step = 1000,
	direct = parameter("direct", false),
	index = parameter("index", 3, 0, 255),
})
local allowed = program { index = index, expire = EXPIRE, cookie = cookie }
local stopped = program { index = index, expire = EXPIRE, cookie = cookie, forward = false }
local refused = declined { expire = parameter("decline", 60, 1, 86400) }

function decide(q)
	if servers ~= "" and not q.server then
		return refused
	end
	if q.protocol == ICMP or q.protocol == ICMPV6 then
		return allowed
	end
	if q.protocol ~= TCP then
		return stopped
	end
	-- A later fragment has no ports: the program holds it to the secondary rate.
	if q.fragment == 2 or q.destination_port == 80 or q.destination_port == 443 then
		return allowed
	end
	return stopped
end
