/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the structures and the runner's frame share. The protocol, the patterns and the checksum are defined in
 * bench/README.md; a structure is one file that builds itself and stamps out its passes with DEFINE_PASSES.
 */
#ifndef TIDEMILL_RUNNER_H
#define TIDEMILL_RUNNER_H

#include "../dpdk/input.h"

#define BATCH 256  /* keys handed over at once */

struct pass {
	double seconds;
	uint64_t checksum;
};

struct structure {
	const char *name;
	int family;
	/* Builds the table. Returns the number of routes refused, or -1 with a message on standard error. */
	long (*build)(const struct routes *routes);
	struct pass (*bulk)(const void *keys, size_t count);
	struct pass (*dependent)(const void *keys, size_t count);
};

extern const struct structure fib_structures[], lpm_structures[], fib6_structures[], lpm6_structures[];

/* The dependent pattern: a key XORed with the label before it. */
static inline uint32_t xor_key4(uint32_t key, uint32_t label)
{
	return key ^ label;
}

static inline addr6 xor_key6(addr6 key, uint32_t label)
{
	for (int i = 0; i < 4; i++)
		key.byte[15 - i] ^= (uint8_t)(label >> (8 * i));
	return key;
}

/* The two timed passes of a structure. BULK(keys, out, n) answers a batch, ONE(key) one key with its label;
 * LABEL(result) turns what BULK stores into a label, outside the timed part. `count` is a multiple of BLOCK. */
#define DEFINE_PASSES(NAME, KEY, OUT, BULK, ONE, LABEL, XOR)                                                    \
	static struct pass NAME##_bulk(const void *all, size_t count)                                           \
	{                                                                                                       \
		static OUT results[BLOCK];                                                                      \
		const KEY *keys = all;                                                                          \
		struct pass pass = {0, FNV_OFFSET};                                                             \
		for (size_t block = 0; block < count; block += BLOCK) {                                         \
			double start = now_seconds();                                                           \
			for (size_t i = 0; i < BLOCK; i += BATCH)                                               \
				BULK(keys + block + i, results + i, BATCH);                                     \
			pass.seconds += now_seconds() - start;                                                  \
			for (size_t i = 0; i < BLOCK; i++)                                                      \
				pass.checksum = checksum_add(pass.checksum, LABEL(results[i]));                 \
		}                                                                                               \
		return pass;                                                                                    \
	}                                                                                                       \
	static struct pass NAME##_dependent(const void *all, size_t count)                                      \
	{                                                                                                       \
		static uint32_t results[BLOCK];                                                                 \
		const KEY *keys = all;                                                                          \
		struct pass pass = {0, FNV_OFFSET};                                                             \
		uint32_t label = 0;                                                                             \
		for (size_t block = 0; block < count; block += BLOCK) {                                         \
			double start = now_seconds();                                                           \
			for (size_t i = 0; i < BLOCK; i++)                                                      \
				results[i] = label = ONE(XOR(keys[block + i], label));                          \
			pass.seconds += now_seconds() - start;                                                  \
			for (size_t i = 0; i < BLOCK; i++)                                                      \
				pass.checksum = checksum_add(pass.checksum, results[i]);                        \
		}                                                                                               \
		return pass;                                                                                    \
	}

#endif
