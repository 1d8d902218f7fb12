// SPDX-License-Identifier: MIT OR Apache-2.0
//
// grantedv2: all packets are held to the primary limit; fragments, and what is neither TCP nor UDP, to the secondary as well.
// The decision's cookie: struct two_limits.

#include "limits.h"

FLOW_INIT
{
	return two_limits_init(cx, cookie, sizeof(u32) * 4);
}

FLOW_PKT
{
	int plain = cx->fragment == FLOW_WHOLE && (cx->protocol == FLOW_TCP || cx->protocol == FLOW_UDP);

	return spend(cx, cookie, !plain);
}
