// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// What is below a frame's VLAN tags, as crates/wire has it.

#pragma once

#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reader.h"

// As in crates/wire: vlan::MAX_TAGS.
#define MAX_TAGS 4

// Where the network header is, by the number of tags (room for more, or the table would get a section of its own).
static const __u8 below_tags[64] = { 14, 18, 22, 26, 30 };

// Reads on from the Ethernet header, which has just been taken, to the network header. Its type; 0: the frame ends before.
static __always_inline __be16 below(struct reader *frame, struct ethhdr *ethernet)
{
	__be16 type = ethernet->h_proto;
	__u32 tags;

#pragma unroll
	for (tags = 0; tags < MAX_TAGS; tags++) {
		struct tag {
			__be16 tci, type;
		} *tag;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD) && type != bpf_htons(0x9100))
			break;
		tag = TAKE(frame, struct tag);
		if (!tag)
			return 0;
		type = tag->type;
	}
	frame->at = (void *)ethernet + below_tags[tags & 63];
	return type;
}
