// SPDX-License-Identifier: MIT OR Apache-2.0
//
// tcp-services: TCP to the ports that the cookie lists, within the primary limit. Within the secondary as well: what opens a connection (SYN without
// ACK) and fragments. All else is declined.
// The decision's cookie: struct two_limits, then from byte 40 on six ranges of ports, first and last, u16 each, little-endian. 0 is no port.

#include "limits.h"

#define RANGES 6

struct ports {
	u16 first, last;
};

struct services {
	struct limits limits;
	struct ports ports[RANGES];
};
_Static_assert(sizeof(struct services) == 64, "a cookie");

FLOW_INIT
{
	return two_limits_init(cx, cookie, sizeof(struct limits) + sizeof(struct ports));
}

FLOW_PKT
{
	struct services *services = cookie;
	struct segment segment;

	if (cx->protocol != FLOW_TCP)
		return FLOW_DECLINED;
	if (cx->fragment == FLOW_LATER_FRAGMENT)
		return spend(cx, &services->limits, 1);
	if (!segment_of(cx, &segment) || !segment.to_port)
		return FLOW_DECLINED;
#pragma unroll
	for (int i = 0; i < RANGES; i++) {
		if (segment.to_port >= services->ports[i].first && segment.to_port <= services->ports[i].last)
			return spend(cx, &services->limits, segment.opens || cx->fragment);
	}
	return FLOW_DECLINED;
}
