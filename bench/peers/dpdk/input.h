/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the C runners on DPDK share: tables and keys as the driver writes them, the start of DPDK, the clock, the
 * checksum. The formats are defined in bench/README.md.
 */
#ifndef TIDEMILL_INPUT_H
#define TIDEMILL_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define BLOCK 4096 /* keys come in multiples of this; lookups between two looks at the clock */
#define FNV_OFFSET 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL

typedef struct {
	uint8_t byte[16];
} addr6;

/* One line of the table; `v4` in host order, `v6` in network order. */
struct route {
	uint32_t v4;
	addr6 v6;
	uint8_t length;
	uint32_t label;
};

struct routes {
	struct route *list;
	size_t count;
	uint32_t greatest_label;
	int family; /* 4 or 6 */
};

/* The keys of a pass: uint32_t or addr6. */
struct keys {
	const void *random;   /* in their order */
	const void *repeated; /* laid out for `rep` */
	size_t count;
	bool huge; /* on 2 MB pages */
};

/* Ends the process with a message. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

struct routes read_table(const char *path, int family);
struct keys read_keys(const char *path, size_t size);

/* Memory for keys, which begins where a huge page can. Once it is written to, the kernel is asked to put it on such pages, where tables
 * lie: on pages of 4 KB the translations of many keys are looked for beside the table's, and push them out. False if it would not. */
void *room_for(size_t bytes);
bool on_huge_pages(void *room, size_t bytes);

/* Starts DPDK without devices but these virtual ones (NULL-terminated); true if on 2 MB pages. */
bool start_dpdk(char *program, const char *const *devices);

static inline double now_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline uint64_t checksum_add(uint64_t hash, uint32_t label)
{
	for (int i = 0; i < 4; i++)
		hash = (hash ^ ((label >> (8 * i)) & 0xff)) * FNV_PRIME;
	return hash;
}

#endif
