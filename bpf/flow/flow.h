// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a flow program is given and what it says. A program is two functions in sections of their names:
//
//	FLOW_INIT { ... return 0; }       a decision has brought the program to a flow; anything but 0: the cookie is none of its own
//	FLOW_PKT  { ... return FLOW_...; }  a packet of the flow
//
// with `cx`, the context, and `cookie`, 64 bytes that are the flow's. It is verified before it runs: crates/flowprog/src/verify/mod.rs has
// the rules. In short: no loops that are not unrolled, no calls that are not inlined, no global data, and bytes of the packet
// only behind a comparison with its end. Made into NAME.bpf.o by `cargo xtask bpf`.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

// Numbers are in the machine's order. crates/flowprog/src/context.rs has the same.
struct flow_context {
	u64 now_ns;
	u64 expires_ns; // when the decision expires
	const u8 *l3; // the IP header
	const u8 *l4; // the first header behind IP's; `end` if none can be read
	const u8 *end;
	u32 bytes; // of the packet, from its IP header on
	u8 family; // 4, 6
	u8 protocol; // of what is at l4
	u8 fragment;
	u8 dscp;
	u8 cookie_len; // in `init`: bytes that the decision has brought; the others are 0
	u8 zero[7];
};
_Static_assert(sizeof(struct flow_context) == 56, "as the verifier knows it");

enum { FLOW_WHOLE, FLOW_FIRST_FRAGMENT, FLOW_LATER_FRAGMENT };

// What is said of a packet; anything else is a fault, and the packet is dropped. 3 to 63: it goes as a request of that DSCP.
enum {
	FLOW_DECLINED = 0,
	FLOW_GRANTED = 1,
	FLOW_RENEW = 2, // granted, and it is time for the next decision
	FLOW_OVER_RATE = 64,
	FLOW_DIRECT = 256, // with FLOW_GRANTED: not by way of the Grantor
};

#define FLOW_INIT __attribute__((section("init"), used)) int flow_init(const struct flow_context *cx, void *cookie)
#define FLOW_PKT __attribute__((section("pkt"), used)) int flow_pkt(const struct flow_context *cx, void *cookie)
#define INLINE static inline __attribute__((always_inline))

enum { FLOW_ICMP = 1, FLOW_TCP = 6, FLOW_UDP = 17, FLOW_ICMPV6 = 58 };
