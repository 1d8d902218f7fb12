// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// The router's fast path (forward.h): forwards what it can.
//
//   frame -> forward.h --redirected
//                |
//                '-- all else --> next[port], an AF_XDP port's program, or else the kernel
//
// Linux 5.9. Made into route.bpf.o by `cargo xtask bpf`.

#include "forward.h"

// A router judges nothing.
static __always_inline int is_current(const struct input *input)
{
	(void)input;
	return 1;
}

static __always_inline int is_judged(const struct input *input, __u64 high, __u64 low, const int is_six)
{
	(void)input, (void)high, (void)low, (void)is_six;
	return 0;
}

SEC("xdp")
int tidemill_route(struct xdp_md *context)
{
	__u32 device, *port;

	if (forwarded(context))
		return XDP_REDIRECT;
	device = context->ingress_ifindex;
	port = bpf_map_lookup_elem(&ports, &device);
	if (port)
		bpf_tail_call(context, &next, *port);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
