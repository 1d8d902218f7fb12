-- For the fuzz target grantor_policy: answers whatever the question says, numbers of any kind, kinds that there are and one that there is not.

local KINDS = { "granted", "declined", "program", "none", "colour" }

function decide(q)
	local a, b, c, d = q.source_port, q.destination_port, q.dscp, q.fragment
	if #q.source == 16 then
		a, b = string.unpack("<dd", q.source)
		c, d = string.unpack("<dd", q.destination)
	end
	return {
		kind = KINDS[1 + q.protocol % 5],
		forward = q.dscp % 2 == 1,
		direct = q.dscp % 4 >= 2,
		a = a,
		b = b,
		c = c,
		d = d,
		cookie = string.sub(q.source, 1, q.source_port % 18),
	}
end
