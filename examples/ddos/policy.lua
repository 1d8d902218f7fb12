-- Who may send how much, in the scenario beside this file. By the source alone:
--
--   client's network   hosts below 16384 (the client, a TCP transfer, newcomers): the client's rate; its host 4 is declined, as is the rest, which is spoofed;
--                      by after.lua host 5 is declined, too, and hosts from 32768 on are granted
--   12.0.0.0/8         those who look legitimate: granted a little each
--   13.0.0.0/8, 2001:db8:13::/64   undecided: they go on asking, which is the attack on the request channel
--   14.0.0.0/8         the flow program `web` with little for what opens connections; what they abuse is its cookie's allowance
--   anybody else       declined

local RATE = parameter("rate", 1024, 1, 1000000)
local SOME = parameter("some", 16, 1, 1000000)

signature("source")
field("class", lpm("sources.txt"), "source")

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
