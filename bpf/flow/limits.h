// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Two rates and renewals: what the programs that grant have in common.
//
// A rate is a bucket that holds a second's worth, full at first, kept as the time at which it will be full again, in units of 1/1024 ns
// (the theoretical arrival time of the generic cell rate algorithm). A packet puts that off by its bytes times what a byte costs,
// and passes if it is then a second ahead at most. What a byte costs is computed once, rounded up, so that no packet divides.

#pragma once

#include "flow.h"

// The state in the cookie once `init` has run. crates/flowprog/src/cookie.rs reads it.
struct limits {
	u64 full[2]; // when each bucket is full again
	u64 renew_ns; // when to ask for the next decision
	// Bits 39 to 0: what a byte costs, 2^-20 ns; 0: nothing passes. Above, in the first: milliseconds from one renewal to the next; in
	// the second: whether packets go past the Grantor.
	u64 cost[2];
};

#define COST_BITS 40
#define COST ((1ull << COST_BITS) - 1)
#define LONGEST_STEP_MS ((1u << 24) - 1)
#define SECOND (1000000000ull << 10)

INLINE u64 cost_of(u32 kib_s)
{
	return kib_s ? ((1000000000ull << 10) + kib_s - 1) / kib_s : 0;
}

INLINE void set_limits(const struct flow_context *cx, struct limits *limits, u32 primary, u32 secondary, u32 renew_ms,
		       u32 step_ms, int direct)
{
	u64 step = step_ms < LONGEST_STEP_MS ? step_ms : LONGEST_STEP_MS;

	limits->full[0] = limits->full[1] = cx->now_ns << 10;
	limits->renew_ns = cx->now_ns + renew_ms * 1000000ull;
	limits->cost[0] = step << COST_BITS | cost_of(primary);
	limits->cost[1] = (u64)!!direct << COST_BITS | cost_of(secondary);
}

// Whether a packet fits, and when the bucket is then full again.
INLINE int fits(const struct flow_context *cx, u64 full, u64 cost, u64 *after)
{
	u64 now = cx->now_ns << 10, missing = full - now;

	if ((s64)missing < 0)
		missing = 0;
	missing += (cx->bytes * (cost & COST) + 1023) >> 10;
	*after = now + missing;
	return (cost & COST) && missing <= SECOND;
}

// All packets are held to the primary limit; those that are of the secondary kind, to that as well. What is dropped changes nothing.
INLINE int spend(const struct flow_context *cx, struct limits *limits, int secondary)
{
	u64 first, second;

	if (!fits(cx, limits->full[0], limits->cost[0], &first))
		return FLOW_OVER_RATE;
	if (secondary) {
		if (!fits(cx, limits->full[1], limits->cost[1], &second))
			return FLOW_OVER_RATE;
		limits->full[1] = second;
	}
	limits->full[0] = first;
	if (cx->now_ns >= limits->renew_ns) {
		limits->renew_ns = cx->now_ns + (limits->cost[0] >> COST_BITS) * 1000000;
		return FLOW_RENEW;
	}
	return limits->cost[1] >> COST_BITS ? FLOW_GRANTED | FLOW_DIRECT : FLOW_GRANTED;
}

// What a decision brings to the programs with two limits: 17 bytes. The layout is the public system's.
struct two_limits {
	u32 primary_kib_s, secondary_kib_s;
	u32 renew_ms; // the first renewal comes so long after the decision,
	u32 step_ms; // and each next so long after the one before
	u8 direct;
};

INLINE int two_limits_init(const struct flow_context *cx, void *cookie, u32 least)
{
	struct two_limits brought;

	if (cx->cookie_len < least)
		return 1;
	__builtin_memcpy(&brought, cookie, sizeof(brought));
	set_limits(cx, cookie, brought.primary_kib_s, brought.secondary_kib_s, brought.renew_ms, brought.step_ms,
		   brought.direct);
	return 0;
}

enum kind { DECLINE, PRIMARY, SECONDARY };

// A TCP segment as far as it tells what it is for.
struct segment {
	u16 to_port;
	int opens; // SYN without ACK
};

INLINE int segment_of(const struct flow_context *cx, struct segment *segment)
{
	const u8 *tcp = cx->l4;

	if (tcp + 14 > cx->end)
		return 0;
	segment->to_port = tcp[2] << 8 | tcp[3];
	segment->opens = (tcp[13] & 0x12) == 0x02;
	return 1;
}

// Whether an ICMP message is one that connections need: errors, and echo both ways.
INLINE int needed_icmp(const struct flow_context *cx)
{
	const u8 *icmp = cx->l4;
	u8 type;

	if (cx->fragment == FLOW_LATER_FRAGMENT || icmp + 8 > cx->end)
		return 0;
	type = icmp[0];
	if (cx->protocol == FLOW_ICMP && cx->family == 4)
		return type == 0 || type == 3 || type == 8 || type == 11 || type == 12;
	if (cx->protocol == FLOW_ICMPV6 && cx->family == 6)
		return (type >= 1 && type <= 4) || type == 128 || type == 129;
	return 0;
}
