// SPDX-License-Identifier: MIT OR Apache-2.0
//
// web: TCP to ports 80 and 443 within the primary limit. Within the secondary as well: what opens a connection (SYN without ACK), fragments of TCP,
// and the ICMP that connections need (errors, echo). All else is declined, and so is a segment whose flags cannot be read.
// The decision's cookie: struct two_limits.

#include "limits.h"

FLOW_INIT
{
	return two_limits_init(cx, cookie, sizeof(u32) * 4);
}

FLOW_PKT
{
	struct segment segment;

	if (cx->protocol != FLOW_TCP)
		return needed_icmp(cx) ? spend(cx, cookie, 1) : FLOW_DECLINED;
	if (cx->fragment == FLOW_LATER_FRAGMENT)
		return spend(cx, cookie, 1);
	if (!segment_of(cx, &segment) || (segment.to_port != 80 && segment.to_port != 443))
		return FLOW_DECLINED;
	return spend(cx, cookie, segment.opens || cx->fragment);
}
