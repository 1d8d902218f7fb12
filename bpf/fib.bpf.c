// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Forwards plain IPv4 by the kernel's own table, to one device: what the kernel offers whoever would forward in the driver. For measurements
// (`tidemill bench port wire`). What it does not forward goes on to the kernel. Made into fib.bpf.o by `cargo xtask bpf`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reader.h"

// As the kernel has it.
#define FAMILY_IPV4 2

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} devices SEC(".maps");

SEC("xdp")
int tidemill_fib(struct xdp_md *context)
{
	struct reader frame = { (void *)(long)context->data, (void *)(long)context->data_end };
	struct ethhdr *ethernet = TAKE(&frame, struct ethhdr);
	struct bpf_fib_lookup route = { .family = FAMILY_IPV4, .ifindex = context->ingress_ifindex };
	struct iphdr *ip = TAKE(&frame, struct iphdr);
	__u32 check;

	if (!ethernet || !ip || ethernet->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->ttl <= 1)
		return XDP_PASS;
	route.tos = ip->tos;
	route.l4_protocol = ip->protocol;
	route.tot_len = bpf_ntohs(ip->tot_len);
	route.ipv4_src = ip->saddr;
	route.ipv4_dst = ip->daddr;
	if (bpf_fib_lookup(context, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return XDP_PASS;
	check = ip->check + bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl--;
	__builtin_memcpy(ethernet->h_dest, route.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, route.smac, ETH_ALEN);
	return bpf_redirect_map(&devices, 0, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
