/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A forwarder as one would write it on DPDK for speed: receive a burst, parse, look up in bulk, time to live, checksum,
 * MAC addresses, send a burst. Between two net_null devices on one core; the protocol is in bench/README.md. IPv4 by rte_fib
 * or rte_lpm, IPv6 by rte_fib6 or rte_lpm6.
 *
 * net_null gives buffers without touching them, so that whoever receives has to write packets into them first (`fill`).
 */
#include "../dpdk/input.h"

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_ip.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>
#include <rte_udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN 0
#define OUT 1
#define MOST 256	/* packets in a burst at most */
#define FRAME 60	/* 64 with the frame check sequence */
#define FRAME6 62	/* the shortest of UDP in IPv6: 66 */
#define BUFFERS 8191
#define CACHE 256
#define DESCRIPTORS 1024
#define AHEAD 4		/* packets that are prefetched ahead */

static struct rte_fib *fib;
static struct rte_fib6 *fib6;
static struct rte_lpm *lpm;
static struct rte_lpm6 *lpm6;
static struct rte_mempool *buffers;
static unsigned int burst = 32;
/* By label: what is written over the first 12 bytes of a packet. */
static struct hop {
	struct rte_ether_addr destination, source;
	uint16_t port;
} *hops;
static uint32_t greatest;

/* A UDP packet whose destination is zero, and the sums of the words of its headers. */
static uint8_t template[64] __rte_cache_aligned;
static uint32_t ip_sum, udp_sum;

static const uint32_t *destinations;
static const addr6 *destinations6;
static size_t destination_count, at;

static void make_template(void)
{
	struct rte_ether_hdr *ether = (struct rte_ether_hdr *)template;
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
	ether->dst_addr = (struct rte_ether_addr){{2, 0, 0, 0, 0, 1}};
	ether->src_addr = (struct rte_ether_addr){{2, 0, 0, 0, 0, 2}};
	ether->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	ip->version_ihl = 0x45;
	ip->total_length = rte_cpu_to_be_16(FRAME - sizeof(*ether));
	ip->fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG);
	ip->time_to_live = 64;
	ip->next_proto_id = IPPROTO_UDP;
	ip->src_addr = rte_cpu_to_be_32(RTE_IPV4(198, 18, 0, 1));
	udp->src_port = rte_cpu_to_be_16(1024);
	udp->dst_port = rte_cpu_to_be_16(9);
	udp->dgram_len = rte_cpu_to_be_16(FRAME - sizeof(*ether) - sizeof(*ip));
	ip_sum = rte_raw_cksum(ip, sizeof(*ip));
	udp_sum = rte_raw_cksum(udp, sizeof(*udp)) + rte_ipv4_phdr_cksum(ip, 0);
}

static void make_template6(void)
{
	struct rte_ether_hdr *ether = (struct rte_ether_hdr *)template;
	struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(ether + 1);
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
	const uint8_t source[16] = {0x20, 0x01, 0, 2, [15] = 1};
	ether->dst_addr = (struct rte_ether_addr){{2, 0, 0, 0, 0, 1}};
	ether->src_addr = (struct rte_ether_addr){{2, 0, 0, 0, 0, 2}};
	ether->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6);
	ip->vtc_flow = rte_cpu_to_be_32(6u << 28);
	ip->payload_len = rte_cpu_to_be_16(FRAME6 - sizeof(*ether) - sizeof(*ip));
	ip->proto = IPPROTO_UDP;
	ip->hop_limits = 64;
	memcpy(ip->src_addr, source, sizeof(source));
	udp->src_port = rte_cpu_to_be_16(1024);
	udp->dst_port = rte_cpu_to_be_16(9);
	udp->dgram_len = ip->payload_len;
	udp_sum = (uint32_t)rte_raw_cksum(udp, sizeof(*udp)) + rte_ipv6_phdr_cksum(ip, 0);
}

static inline uint16_t folded(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* Writes a packet into each buffer: the template, the next destination, both checksums. */
static inline void fill(struct rte_mbuf **packets, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		uint8_t *data = rte_pktmbuf_mtod(packets[i], uint8_t *);
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(data + sizeof(struct rte_ether_hdr));
		struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
		uint32_t destination = rte_cpu_to_be_32(destinations[at]);
		at = at + 1 == destination_count ? 0 : at + 1;
		rte_memcpy(data, template, sizeof(template));
		ip->dst_addr = destination;
		uint32_t words = (destination & 0xffff) + (destination >> 16);
		ip->hdr_checksum = folded(ip_sum + words);
		udp->dgram_cksum = folded(udp_sum + words);
		packets[i]->data_len = FRAME;
		packets[i]->pkt_len = FRAME;
	}
}

static inline void fill6(struct rte_mbuf **packets, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		uint8_t *data = rte_pktmbuf_mtod(packets[i], uint8_t *);
		struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(data + sizeof(struct rte_ether_hdr));
		struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
		uint32_t words[4];
		memcpy(words, &destinations6[at], sizeof(words));
		at = at + 1 == destination_count ? 0 : at + 1;
		rte_memcpy(data, template, sizeof(template));
		memcpy(ip->dst_addr, words, sizeof(words));
		uint32_t sum = udp_sum;
		for (int w = 0; w < 4; w++)
			sum += (words[w] & 0xffff) + (words[w] >> 16);
		uint16_t checksum = folded(sum);
		/* None is no checksum in IPv6: RFC 8200, 8.1. */
		udp->dgram_cksum = checksum != 0 ? checksum : 0xffff;
		packets[i]->data_len = FRAME6;
		packets[i]->pkt_len = FRAME6;
	}
}

/* Drops what is not to be forwarded and keeps the others in order, with their destinations in host order. What l3fwd checks with
 * RFC 1812's rules, but for the checksum, which it leaves to the card. */
static inline unsigned int parse(struct rte_mbuf **packets, unsigned int n, uint32_t *keys)
{
	unsigned int good = 0;
	for (unsigned int i = 0; i < n && i < AHEAD; i++)
		rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
	for (unsigned int i = 0; i < n; i++) {
		if (i + AHEAD < n)
			rte_prefetch0(rte_pktmbuf_mtod(packets[i + AHEAD], void *));
		struct rte_mbuf *packet = packets[i];
		const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, const struct rte_ether_hdr *);
		const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ether + 1);
		uint16_t length = rte_be_to_cpu_16(ip->total_length);
		if (likely(packet->data_len >= sizeof(*ether) + sizeof(*ip) &&
			   ether->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && ip->version_ihl == 0x45 &&
			   length >= sizeof(*ip) && length <= packet->data_len - sizeof(*ether) && ip->time_to_live > 1)) {
			keys[good] = rte_be_to_cpu_32(ip->dst_addr);
			packets[good++] = packet;
		} else {
			rte_pktmbuf_free(packet);
		}
	}
	return good;
}

static inline unsigned int parse6(struct rte_mbuf **packets, unsigned int n, addr6 *keys)
{
	unsigned int good = 0;
	for (unsigned int i = 0; i < n && i < AHEAD; i++)
		rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
	for (unsigned int i = 0; i < n; i++) {
		if (i + AHEAD < n)
			rte_prefetch0(rte_pktmbuf_mtod(packets[i + AHEAD], void *));
		struct rte_mbuf *packet = packets[i];
		const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, const struct rte_ether_hdr *);
		const struct rte_ipv6_hdr *ip = (const struct rte_ipv6_hdr *)(ether + 1);
		if (likely(packet->data_len >= sizeof(*ether) + sizeof(*ip) &&
			   ether->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6) &&
			   rte_be_to_cpu_32(ip->vtc_flow) >> 28 == 6 &&
			   rte_be_to_cpu_16(ip->payload_len) <= packet->data_len - sizeof(*ether) - sizeof(*ip) &&
			   ip->hop_limits > 1)) {
			memcpy(&keys[good], ip->dst_addr, sizeof(keys[good]));
			packets[good++] = packet;
		} else {
			rte_pktmbuf_free(packet);
		}
	}
	return good;
}

/* Rewrites for the next hop; drops where there is none. All go out of one port here. */
static inline unsigned int rewrite(struct rte_mbuf **packets, unsigned int n, const uint32_t *labels)
{
	unsigned int good = 0;
	for (unsigned int i = 0; i < n; i++) {
		struct rte_mbuf *packet = packets[i];
		struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
		if (unlikely(labels[i] == 0)) {
			rte_pktmbuf_free(packet);
			continue;
		}
		const struct hop *hop = &hops[labels[i]];
		ether->dst_addr = hop->destination;
		ether->src_addr = hop->source;
		ip->time_to_live--;
		/* RFC 1624: the word of the time to live became smaller by 0x0100. */
		uint32_t sum = (uint32_t)ip->hdr_checksum + rte_cpu_to_be_16(0x0100);
		ip->hdr_checksum = (uint16_t)(sum + (sum >> 16));
		packet->port = hop->port;
		packets[good++] = packet;
	}
	return good;
}

static inline unsigned int rewrite6(struct rte_mbuf **packets, unsigned int n, const uint32_t *labels)
{
	unsigned int good = 0;
	for (unsigned int i = 0; i < n; i++) {
		struct rte_mbuf *packet = packets[i];
		struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
		struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(ether + 1);
		if (unlikely(labels[i] == 0)) {
			rte_pktmbuf_free(packet);
			continue;
		}
		const struct hop *hop = &hops[labels[i]];
		ether->dst_addr = hop->destination;
		ether->src_addr = hop->source;
		ip->hop_limits--;
		packet->port = hop->port;
		packets[good++] = packet;
	}
	return good;
}

enum way { IO, FILL, FIB, LPM, FILL6, FIB6, LPM6 };

static inline unsigned int route6(struct rte_mbuf **packets, unsigned int n, enum way way)
{
	addr6 keys[MOST];
	uint32_t labels[MOST];
	uint64_t wide[MOST];
	int32_t found[MOST];
	n = parse6(packets, n, keys);
	if (way == FIB6) {
		rte_fib6_lookup_bulk(fib6, (uint8_t(*)[16])keys, wide, (int)n);
		for (unsigned int i = 0; i < n; i++) {
			labels[i] = (uint32_t)wide[i];
			rte_prefetch0(&hops[labels[i]]);
		}
	} else {
		rte_lpm6_lookup_bulk_func(lpm6, (uint8_t(*)[16])keys, found, n);
		for (unsigned int i = 0; i < n; i++) {
			labels[i] = found[i] < 0 ? 0 : (uint32_t)found[i];
			rte_prefetch0(&hops[labels[i]]);
		}
	}
	return rewrite6(packets, n, labels);
}

static inline unsigned int route(struct rte_mbuf **packets, unsigned int n, enum way way)
{
	uint32_t keys[MOST], labels[MOST];
	uint64_t wide[MOST];
	n = parse(packets, n, keys);
	if (way == FIB) {
		rte_fib_lookup_bulk(fib, keys, wide, (int)n);
		for (unsigned int i = 0; i < n; i++) {
			labels[i] = (uint32_t)wide[i];
			rte_prefetch0(&hops[labels[i]]);
		}
	} else {
		rte_lpm_lookup_bulk(lpm, keys, labels, n);
		for (unsigned int i = 0; i < n; i++) {
			labels[i] = labels[i] & RTE_LPM_LOOKUP_SUCCESS ? labels[i] & 0xffffff : 0;
			rte_prefetch0(&hops[labels[i]]);
		}
	}
	return rewrite(packets, n, labels);
}

struct result {
	uint64_t sent;
	double seconds;
	uint64_t checksum;
};

/* Whether a packet is one that was forwarded once. */
static bool is_right(const uint8_t *frame)
{
	const struct rte_ether_hdr *ether = (const struct rte_ether_hdr *)frame;
	if (ether->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6)) {
		const struct rte_ipv6_hdr *ip = (const struct rte_ipv6_hdr *)(ether + 1);
		uint32_t sum = (uint32_t)rte_raw_cksum(ip + 1, rte_be_to_cpu_16(ip->payload_len)) + rte_ipv6_phdr_cksum(ip, 0);
		return ip->hop_limits == 63 && folded(sum) == 0;
	}
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ether + 1);
	return ip->time_to_live == 63 && rte_raw_cksum(ip, sizeof(*ip)) == 0xffff;
}

/* Forwards `count` packets; if `digest`, what would be sent is looked at instead: the labels that its addresses tell. */
static __rte_always_inline struct result forward(size_t count, enum way way, bool digest)
{
	struct result result = {0, 0, FNV_OFFSET};
	struct rte_mbuf *packets[MOST];
	double start = now_seconds();
	for (size_t done = 0; done < count;) {
		unsigned int want = count - done < burst ? (unsigned int)(count - done) : burst;
		unsigned int n = rte_eth_rx_burst(IN, 0, packets, (uint16_t)want);
		done += n;
		if (way == FILL || way == FIB || way == LPM)
			fill(packets, n);
		else if (way != IO)
			fill6(packets, n);
		if (way == FIB || way == LPM)
			n = route(packets, n, way);
		else if (way == FIB6 || way == LPM6)
			n = route6(packets, n, way);
		unsigned int sent = 0;
		if (digest) {
			for (; sent < n; sent++) {
				const uint8_t *mac = rte_pktmbuf_mtod(packets[sent], const uint8_t *);
				uint32_t label = (uint32_t)mac[2] << 24 | mac[3] << 16 | mac[4] << 8 | mac[5];
				if (!is_right(mac))
					fail("a wrong packet");
				result.checksum = checksum_add(result.checksum, label);
			}
			rte_pktmbuf_free_bulk(packets, n);
		} else {
			sent = rte_eth_tx_burst(OUT, 0, packets, (uint16_t)n);
			for (unsigned int i = sent; i < n; i++)
				rte_pktmbuf_free(packets[i]);
		}
		result.sent += sent;
	}
	result.seconds = now_seconds() - start;
	return result;
}

static void open_device(uint16_t port)
{
	struct rte_eth_conf conf = {0};
	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0 ||
	    rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, buffers) != 0 ||
	    rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL) != 0 || rte_eth_dev_start(port) != 0)
		fail("device %u: %s", port, rte_strerror(rte_errno));
}

static long build_fib(const struct routes *routes)
{
	struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8, .default_nh = 0, .max_routes = (int)routes->count + 1024};
	conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_2B;
	conf.dir24_8.num_tbl8 = 32767;
	if (routes->greatest_label > 32767)
		fail("a label of %u does not fit in 2 bytes", routes->greatest_label);
	fib = rte_fib_create("fib", SOCKET_ID_ANY, &conf);
	if (fib == NULL)
		fail("rte_fib_create: %s", rte_strerror(rte_errno));
	/* The vector form where the CPU has it; the default is the best scalar one. */
	if (rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512) != 0)
		rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DEFAULT);
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++)
		refused += rte_fib_add(fib, routes->list[i].v4, routes->list[i].length, routes->list[i].label) != 0;
	return refused;
}

static long build_lpm(const struct routes *routes)
{
	struct rte_lpm_config conf = {.max_rules = (uint32_t)routes->count + 1024, .number_tbl8s = 65536};
	lpm = rte_lpm_create("lpm", SOCKET_ID_ANY, &conf);
	if (lpm == NULL)
		fail("rte_lpm_create: %s", rte_strerror(rte_errno));
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++)
		refused += rte_lpm_add(lpm, routes->list[i].v4, routes->list[i].length, routes->list[i].label) != 0;
	return refused;
}

static long build_fib6(const struct routes *routes)
{
	struct rte_fib6_conf conf = {.type = RTE_FIB6_TRIE, .default_nh = 0, .max_routes = (int)routes->count + 1024};
	conf.trie.nh_sz = RTE_FIB6_TRIE_2B;
	conf.trie.num_tbl8 = 32767;
	if (routes->greatest_label > 32767)
		fail("a label of %u does not fit in 2 bytes", routes->greatest_label);
	fib6 = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf);
	if (fib6 == NULL)
		fail("rte_fib6_create: %s", rte_strerror(rte_errno));
	if (rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512) != 0)
		rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_DEFAULT);
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++)
		refused += rte_fib6_add(fib6, routes->list[i].v6.byte, routes->list[i].length, routes->list[i].label) != 0;
	return refused;
}

static long build_lpm6(const struct routes *routes)
{
	struct rte_lpm6_config conf = {.max_rules = (uint32_t)routes->count + 1024, .number_tbl8s = 1u << 19};
	if (routes->greatest_label >= 1u << 21)
		fail("a label of %u does not fit in 21 bits", routes->greatest_label);
	lpm6 = rte_lpm6_create("lpm6", SOCKET_ID_ANY, &conf);
	if (lpm6 == NULL)
		fail("rte_lpm6_create: %s", rte_strerror(rte_errno));
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++)
		refused += rte_lpm6_add(lpm6, routes->list[i].v6.byte, routes->list[i].length, routes->list[i].label) != 0;
	return refused;
}

static void make_hops(void)
{
	hops = calloc(greatest + 1, sizeof(*hops));
	if (hops == NULL)
		fail("no memory for the next hops");
	for (uint32_t label = 0; label <= greatest; label++) {
		uint8_t bytes[] = {2, 0x54, (uint8_t)(label >> 24), (uint8_t)(label >> 16), (uint8_t)(label >> 8), (uint8_t)label};
		memcpy(hops[label].destination.addr_bytes, bytes, sizeof(bytes));
		hops[label].source = (struct rte_ether_addr){{2, 0, 0, 0, 0, 3}};
		hops[label].port = OUT;
	}
}

/* Each way is compiled by itself. */
static struct result routed(enum way way, bool digest)
{
	switch (way) {
	case FIB:
		return digest ? forward(destination_count, FIB, true) : forward(destination_count, FIB, false);
	case LPM:
		return digest ? forward(destination_count, LPM, true) : forward(destination_count, LPM, false);
	case FIB6:
		return digest ? forward(destination_count, FIB6, true) : forward(destination_count, FIB6, false);
	default:
		return digest ? forward(destination_count, LPM6, true) : forward(destination_count, LPM6, false);
	}
}

static void pass(const char *structure, const char *word, enum way way)
{
	struct result result;
	bool is_six = way == FIB6 || way == LPM6;
	if (strcmp(word, "io") == 0)
		result = forward(destination_count, IO, false);
	else if (strcmp(word, "fill") == 0)
		result = is_six ? forward(destination_count, FILL6, false) : forward(destination_count, FILL, false);
	else if (strcmp(word, "route") == 0)
		result = routed(way, false);
	else if (strcmp(word, "check") == 0)
		result = routed(way, true);
	else {
		printf("{\"v\":1,\"error\":\"no such way: use io, fill, route or check\"}\n");
		return;
	}
	printf("{\"v\":1,\"bench\":\"port\",\"subject\":\"peer:%s\",\"case\":\"%s\",\"lookups\":%zu,\"sent\":%lu,\"seconds\":%.9f,"
	       "\"checksum\":\"%016lx\"}\n",
	       structure, word, destination_count, result.sent, result.seconds, result.checksum);
}

static void set_burst(unsigned int packets)
{
	if (packets == 0 || packets > MOST) {
		printf("{\"v\":1,\"error\":\"burst: use 1 to %d\"}\n", MOST);
		return;
	}
	burst = packets;
	printf("{\"v\":1,\"burst\":%u}\n", burst);
}

int main(int argc, char **argv)
{
	const char *table = NULL, *keyfile = NULL, *structure = NULL;
	int family = 4;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--table") == 0)
			table = argv[i + 1];
		else if (strcmp(argv[i], "--keys") == 0)
			keyfile = argv[i + 1];
		else if (strcmp(argv[i], "--structure") == 0)
			structure = argv[i + 1];
		else if (strcmp(argv[i], "--family") == 0)
			family = atoi(argv[i + 1]);
		else
			fail("unknown option %s", argv[i]);
	}
	bool is_six = family == 6;
	if (table == NULL || keyfile == NULL || structure == NULL || (family != 4 && !is_six))
		fail("usage: forward --structure dpdk-fwd-fib|dpdk-fwd-lpm --table FILE --keys FILE [--family 4|6]");
	bool is_fib = strcmp(structure, "dpdk-fwd-fib") == 0;
	if (!is_fib && strcmp(structure, "dpdk-fwd-lpm") != 0)
		fail("no structure %s", structure);
	struct routes routes = read_table(table, family);
	struct keys keys = read_keys(keyfile, is_six ? sizeof(addr6) : sizeof(uint32_t));
	destinations = keys.random;
	destinations6 = keys.random;
	destination_count = keys.count;
	greatest = routes.greatest_label;
	const char *devices[] = {"net_null0,size=60", "net_null1,size=60", NULL};
	const char *devices6[] = {"net_null0,size=62", "net_null1,size=62", NULL};
	bool huge = start_dpdk(argv[0], is_six ? devices6 : devices);
	buffers = rte_pktmbuf_pool_create("buffers", BUFFERS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (buffers == NULL)
		fail("rte_pktmbuf_pool_create: %s", rte_strerror(rte_errno));
	open_device(IN);
	open_device(OUT);
	if (is_six)
		make_template6();
	else
		make_template();
	make_hops();
	double start = now_seconds();
	enum way way = is_six ? (is_fib ? FIB6 : LPM6) : (is_fib ? FIB : LPM);
	long refused = way == FIB    ? build_fib(&routes)
		       : way == LPM  ? build_lpm(&routes)
		       : way == FIB6 ? build_fib6(&routes)
				     : build_lpm6(&routes);
	printf("{\"v\":1,\"ready\":true,\"subject\":\"peer:%s\",\"routes\":%zu,\"rejected\":%ld,\"build_seconds\":%.6f,"
	       "\"bytes\":0,\"params\":{\"pages\":\"%s\",\"burst\":%u}}\n",
	       structure, routes.count - (size_t)refused, refused, now_seconds() - start, huge ? "2 MB" : "4 KB", burst);
	fflush(stdout);

	char line[64], word[16];
	unsigned int packets;
	while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "quit\n") != 0) {
		if (sscanf(line, "run %15s", word) == 1)
			pass(structure, word, way);
		else if (sscanf(line, "burst %u", &packets) == 1)
			set_burst(packets);
		else
			printf("{\"v\":1,\"error\":\"unknown command\"}\n");
		fflush(stdout);
	}
	rte_eal_cleanup();
	return 0;
}
