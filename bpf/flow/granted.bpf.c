// SPDX-License-Identifier: MIT OR Apache-2.0
//
// granted: one rate and renewals, as the gate's own granted state has them.
// The decision's cookie: KiB/s, ms to the first renewal, ms from one to the next; u32 each, little-endian.

#include "limits.h"

struct brought {
	u32 kib_s, renew_ms, step_ms;
};

FLOW_INIT
{
	struct brought brought = *(struct brought *)cookie;

	if (cx->cookie_len < sizeof(brought))
		return 1;
	set_limits(cx, cookie, brought.kib_s, 0, brought.renew_ms, brought.step_ms, 0);
	return 0;
}

FLOW_PKT
{
	return spend(cx, cookie, 0);
}
