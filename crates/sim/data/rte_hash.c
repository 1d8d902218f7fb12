/*
 * What a lookup of DPDK's rte_hash executes: to be run under callgrind, whose counts for the functions below are the mix `rte_hash` in
 * src/mix.rs. Keys of 16 bytes, CRC32 as hash, optimistic lock (RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF).
 *
 *   cc -O2 -g rte_hash.c -o rte_hash $(pkg-config --cflags --libs libdpdk)
 *   valgrind --tool=callgrind --cache-sim=yes --callgrind-out-file=rte.out ./rte_hash
 *   callgrind_annotate --inclusive=yes --show=Ir,Dr,Dw --threshold=100 rte.out | grep -e ':first' -e ':second' -e ':absent' -e ':empty_loop' -e rte_hash_crc
 */
#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <stdint.h>
#include <stdio.h>

#define ENTRIES 4096
#define FILLED 3686 /* nine tenths */
#define ROUNDS 10

static struct rte_hash *table;
static uint64_t own[FILLED][2], elsewhere[FILLED][2], unknown[FILLED][2];
static volatile uint64_t sink;

__attribute__((noinline)) void empty_loop(uint64_t (*keys)[2], int n)
{
	for (int i = 0; i < n; i++)
		sink += keys[i][0];
}

#define LOOKUPS(name) \
	__attribute__((noinline)) void name(uint64_t (*keys)[2], int n) \
	{ \
		for (int i = 0; i < n; i++) \
			sink += rte_hash_lookup(table, keys[i]); \
	}

LOOKUPS(first)  /* one bucket, one entry */
LOOKUPS(second) /* two buckets, one entry */
LOOKUPS(absent) /* two buckets, no entry */

int main(void)
{
	char *args[] = {"rte_hash", "--no-huge", "--no-pci", "-m", "256", "--no-telemetry", "--no-shconf"};
	if (rte_eal_init(7, args) < 0)
		return 1;
	struct rte_hash_parameters parameters = {.name = "mix", .entries = ENTRIES, .key_len = 16, .hash_func = rte_hash_crc, .socket_id = 0,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF};
	table = rte_hash_create(&parameters);
	if (!table)
		return 2;
	for (uint64_t i = 0; i < 2 * FILLED; i++) {
		uint64_t key[2] = {i * 0x9e3779b97f4a7c15ull, i};
		if (i >= FILLED) {
			unknown[i - FILLED][0] = key[0];
			unknown[i - FILLED][1] = key[1];
		} else if (rte_hash_add_key(table, key) < 0) {
			return 3;
		}
	}
	/* The iterator goes through the buckets in order: where it is tells in which bucket a key lies. */
	int firsts = 0, seconds = 0;
	const void *key;
	void *data;
	for (uint32_t next = 0; rte_hash_iterate(table, &key, &data, &next) >= 0;) {
		int home = (rte_hash_hash(table, key) & (ENTRIES / 8 - 1)) == (next - 1) / 8;
		uint64_t *keep = home ? own[firsts++] : elsewhere[seconds++];
		keep[0] = ((const uint64_t *)key)[0];
		keep[1] = ((const uint64_t *)key)[1];
	}
	for (int round = 0; round < ROUNDS; round++) {
		empty_loop(unknown, FILLED);
		first(own, firsts);
		second(elsewhere, seconds);
		absent(unknown, FILLED);
	}
	printf("lookups: empty_loop and absent %d, first %d, second %d\n", ROUNDS * FILLED, ROUNDS * firsts, ROUNDS * seconds);
	return 0;
}
