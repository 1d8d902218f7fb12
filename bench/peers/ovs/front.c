/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Makes the packets of HALO's traffic cases inside of Open vSwitch: a plug-in that its DPDK loads (`-d front.so`). It looks at what the device
 * net_null0 hands out, buffers from the switch's own pool with nothing in them, and writes into each the frame of a flow drawn at random: the very
 * frames of `tidemill bench classify` (crates/cli/src/bench/classify/traffic.rs), at the same place, drawn by the same generator. As a card would, it
 * says a hash of the flow (RSS).
 *
 * Told by a file, FOLDER/order: `NUMBER RUN FLOWS RULES SEED`; RUN is 1 to begin, 2 to go on, 0 to be silent, when it sleeps instead of turning in
 * a circle, so that others may have the processor. What was done is in FOLDER/done: `NUMBER NS PACKETS SENT SENT ...`: for how many nanoseconds the thread
 * had had a processor and how many packets it had been given when it took on the order; the packets of each rule. FOLDER is what the variable TIDEMILL_FRONT says.
 */
#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAME 60
#define RULES 32
#define FIRST 16u /* the first bits of the first rule's network */

struct order {
	uint64_t number, run, flows, rules, seed;
};

/* The watcher writes the order that is not current, then makes it current; the switch's thread says which one it has taken on. */
static struct order orders[2];
static _Atomic(const struct order *) current = &orders[0];
static _Atomic uint64_t taken;
static _Atomic uint64_t sent[RULES];
static _Atomic uint64_t had_ns, given;

static uint8_t template[FRAME];
static char folder[256];

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value);
}

static void make_template(void)
{
	static const uint8_t start[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0};
	memcpy(template, start, sizeof(start));
	put16(template + 16, FRAME - 14);
	/* The identification takes away from the checksum what the addresses add to it. */
	put16(template + 18, 0xffff);
	template[22] = 64;
	template[23] = 17;
	uint32_t sum = 0;
	for (int i = 14; i < 34; i += 2)
		sum += (uint32_t)template[i] << 8 | template[i + 1];
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	put16(template + 24, ~sum);
	put16(template + 38, FRAME - 34);
}

static inline uint64_t mix(uint64_t h)
{
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
	h = (h ^ h >> 27) * 0x94d049bb133111eb;
	return h ^ h >> 31;
}

static inline uint32_t scattered(uint32_t n)
{
	n = (n ^ n >> 16) * 0x85ebca6b;
	n = (n ^ n >> 13) * 0xc2b2ae35;
	return n ^ n >> 16;
}

static inline void write_frame(const struct order *order, uint32_t flow, struct rte_mbuf *packet)
{
	uint32_t rule = flow % (uint32_t)order->rules;
	uint64_t bits = mix((uint64_t)flow ^ order->seed << 32);
	uint32_t destination = (FIRST + rule) << 24 | ((uint32_t)bits & UINT32_MAX >> (9 + rule)), source = scattered(flow);
	uint32_t sum = (source >> 16) + (source & 0xffff) + (destination >> 16) + (destination & 0xffff);
	uint8_t *at = rte_pktmbuf_mtod(packet, uint8_t *);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	memcpy(at, template, FRAME);
	put16(at + 18, ~sum);
	put32(at + 26, source);
	put32(at + 30, destination);
	put32(at + 34, (uint32_t)(bits >> 32) | 0x04000400);
	packet->data_len = FRAME;
	packet->pkt_len = FRAME;
	packet->hash.rss = (uint32_t)(bits ^ bits >> 32);
	packet->ol_flags |= RTE_MBUF_F_RX_RSS_HASH;
	/* One thread writes. */
	atomic_store_explicit(&sent[rule], atomic_load_explicit(&sent[rule], memory_order_relaxed) + 1, memory_order_relaxed);
}

static uint16_t front(uint16_t port, uint16_t queue, struct rte_mbuf *packets[], uint16_t count, uint16_t most, void *unused)
{
	static const struct order *taken_on;
	static uint64_t state, total;
	const struct order *order = atomic_load_explicit(&current, memory_order_acquire);
	(void)port, (void)queue, (void)most, (void)unused;
	if (order != taken_on) {
		struct timespec had = {0};
		if (order->run == 1) {
			state = order->seed;
			total = 0;
			for (int i = 0; i < RULES; i++)
				atomic_store_explicit(&sent[i], 0, memory_order_relaxed);
		}
		taken_on = order;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
		atomic_store_explicit(&had_ns, (uint64_t)had.tv_sec * 1000000000 + (uint64_t)had.tv_nsec, memory_order_relaxed);
		atomic_store_explicit(&given, total, memory_order_relaxed);
		atomic_store_explicit(&taken, order->number, memory_order_release);
	}
	if (!order->run) {
		static const struct timespec pause = {.tv_nsec = 1000000};
		rte_pktmbuf_free_bulk(packets, count);
		nanosleep(&pause, NULL);
		return 0;
	}
	total += count;
	for (uint16_t i = 0; i < count; i++) {
		state += 0x9e3779b97f4a7c15;
		write_frame(order, (uint32_t)((mix(state) >> 32) * order->flows >> 32), packets[i]);
	}
	return count;
}

static void say_done(uint64_t number)
{
	char name[300], new[310];
	snprintf(name, sizeof(name), "%s/done", folder);
	snprintf(new, sizeof(new), "%s.new", name);
	FILE *file = fopen(new, "w");
	if (file == NULL)
		return;
	fprintf(file, "%" PRIu64 " %" PRIu64 " %" PRIu64, number, atomic_load(&had_ns), atomic_load(&given));
	for (int i = 0; i < RULES; i++)
		fprintf(file, " %" PRIu64, atomic_load(&sent[i]));
	fprintf(file, "\n");
	fclose(file);
	rename(new, name);
}

/* Whether the device is there and its packets come by us. */
static bool adopt(void)
{
	uint16_t port;
	return rte_eth_dev_get_port_by_name("net_null0", &port) == 0 && rte_eth_add_rx_callback(port, 0, front, NULL) != NULL;
}

static void *watch(void *unused)
{
	static const struct timespec pause = {.tv_nsec = 2000000};
	char name[300];
	bool there = false;
	uint64_t said = 0;
	(void)unused;
	snprintf(name, sizeof(name), "%s/order", folder);
	for (;;) {
		nanosleep(&pause, NULL);
		there = there || adopt();
		uint64_t number = atomic_load_explicit(&taken, memory_order_acquire);
		if (number != said) {
			say_done(number);
			said = number;
		}
		/* Until the current one has been taken on the other may be in use. */
		if (!there || number != atomic_load(&current)->number)
			continue;
		struct order *next = atomic_load(&current) == &orders[0] ? &orders[1] : &orders[0];
		FILE *file = fopen(name, "r");
		if (file == NULL)
			continue;
		struct order read = {0};
		int got = fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &read.number, &read.run, &read.flows, &read.rules, &read.seed);
		fclose(file);
		if (got == 5 && read.number != number && read.rules >= 1 && read.rules <= RULES && read.flows >= 1 && read.flows <= UINT32_MAX) {
			*next = read;
			atomic_store_explicit(&current, next, memory_order_release);
		}
	}
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	const char *given = getenv("TIDEMILL_FRONT");
	pthread_t thread;
	if (given == NULL || strlen(given) >= sizeof(folder))
		return;
	strcpy(folder, given);
	make_template();
	if (pthread_create(&thread, NULL, watch, NULL) == 0)
		pthread_detach(thread);
}
