-- tcp-services: servers get TCP to the ports that they serve, and the Gatekeeper itself sees to that for every packet, by the flow program
-- `tcp-services`.
--
-- Parameters:
--   ports      ports and ranges, at most six: [22, 25, "8000-8080"]
--   servers    prefixes of the servers (none: every destination)
--   rate       KiB/s for each flow (1024)
--   secondary  KiB/s within that for what opens connections and for fragments (a twentieth of rate)
--   expire     seconds that a decision holds (300)
--   decline    seconds that a refusal holds (60): where `servers` are given
--   direct     true: packets go past the Grantor (false)
--   index      the program's number at the Gatekeeper (4)
--
-- All else is dropped at the Gatekeeper: see bpf/flow/tcp-services.bpf.c. Here only the first packet is judged. Where that is none that the program
-- lets pass it is dropped, and the flow gets the program all the same: a flow is a source and a destination, and whoever tries another port first
-- may use these ports. Who asks for another destination than a server is declined.

local TCP = 6
local EXPIRE = parameter("expire", 300, 1, 86400)
local RATE = parameter("rate", 1024, 1, 4294967295)

signature("source", "destination", "protocol", "destination_port", "fragment")

local servers = parameter("servers", "")
if servers ~= "" then
	field("server", lpm(servers), "destination")
end

local ports = parameter("ports")
local index, cookie = program_of("tcp-services", {
	rate = RATE,
	secondary = parameter("secondary", math.max(1, RATE // 20), 1, 4294967295),
	renew = EXPIRE * 750,
	step = 1000,
	direct = parameter("direct", false),
	index = parameter("index", 4, 0, 255),
	ports = ports,
})
local allowed = program { index = index, expire = EXPIRE, cookie = cookie }
local stopped = program { index = index, expire = EXPIRE, cookie = cookie, forward = false }
local refused = declined { expire = parameter("decline", 60, 1, 86400) }

-- program_of has checked the ports.
local ranges = {}
for _, port in ports do
	local first, last = string.match(tostring(port), "^%s*(%d+)%s*%-%s*(%d+)%s*$")
	table.insert(ranges, { tonumber(first or port), tonumber(last or port) })
end

function decide(q)
	if servers ~= "" and not q.server then
		return refused
	end
	if q.protocol ~= TCP then
		return stopped
	end
	if q.fragment == 2 then
		return allowed -- it has no ports: the program holds it to the secondary rate
	end
	for _, range in ranges do
		if q.destination_port >= range[1] and q.destination_port <= range[2] then
			return allowed
		end
	end
	return stopped
end
