-- As policy.lua, by another table: host 5 of the client's network is declined, hosts from 32768 on are granted.
local RATE = parameter("rate", 1024, 1, 1000000)
local SOME = parameter("some", 16, 1, 1000000)

signature("source")
field("class", lpm("sources-after.txt"), "source")

local index, cookie = program_of("web", { rate = SOME, secondary = 1, renew = 3600000, step = 60000, index = 3 })
local answers = {
	granted { rate = RATE, expire = 30 },
	granted { rate = SOME, expire = 30 },
	undecided { forward = false },
	program { index = index, expire = 600, cookie = cookie },
}
local refused = declined { expire = 600 }

function decide(q)
	return answers[q.class or 0] or refused
end
