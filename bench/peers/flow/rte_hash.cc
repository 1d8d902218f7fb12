/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_hash for one thread: its cuckoo table without locks, with the CRC32 instruction as hash or with jhash. Bulk calls get
 * the hashes ready made, from a function that knows the width of the keys: that is faster here than letting the library call it.
 */
#include "runner.hpp"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_jhash.h>
#include <rte_malloc.h>

static size_t free_huge_bytes()
{
	size_t count = 0;
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	if (file != nullptr) {
		if (fscanf(file, "%zu", &count) != 1)
			count = 0;
		fclose(file);
	}
	return count << 21;
}

/* What a table will need: an entry is key and value, rounded up to 16 bytes; besides 8 bytes of bucket and 8 of the ring of free
 * entries; and room for the heap's own. */
static size_t needed_bytes(const Options &options)
{
	size_t entry = (options.key_bytes + 8 + 15) & ~(size_t)15;
	return options.slots * (entry + 16) * 5 / 4 + (128 << 20);
}

static bool huge;

/* Starts DPDK without devices, on 2 MB pages if enough are free. */
static void start_dpdk(char *program, const Options &options)
{
	size_t bytes = needed_bytes(options);
	huge = free_huge_bytes() >= bytes;
	std::string megabytes = std::to_string(bytes >> 20), pages = huge ? "--in-memory" : "--no-huge";
	std::string size = "-m";
	char no_pci[] = "--no-pci", telemetry[] = "--no-telemetry", log[] = "--log-level=error", shared[] = "--no-shconf";
	char simd[] = "--force-max-simd-bitwidth=512";
	char *arguments[] = {program, no_pci, telemetry, log, simd, pages.data(), shared, size.data(), megabytes.data(), nullptr};
	/* --in-memory implies --no-shconf and takes what it needs; without huge pages all is reserved in one piece. */
	if (rte_eal_init(huge ? 6 : 9, arguments) < 0)
		fail("rte_eal_init: %s", rte_strerror(rte_errno));
}

static size_t heap_bytes()
{
	size_t bytes = 0;
	for (int socket = 0; socket < 8; socket++) {
		struct rte_malloc_socket_stats stats;
		if (rte_malloc_get_socket_stats(socket, &stats) == 0)
			bytes += stats.heap_allocsz_bytes;
	}
	return bytes;
}

template <size_t B> uint32_t crc(const void *key, uint32_t, uint32_t start)
{
	return rte_hash_crc(key, B, start);
}

template <size_t B> uint32_t jenkins(const void *key, uint32_t, uint32_t start)
{
	return rte_jhash(key, B, start);
}

/* The library has comparisons of its own for multiples of 16 bytes; for others it calls memcmp. */
template <size_t B> int differs(const void *a, const void *b, size_t)
{
	return __builtin_memcmp(a, b, B) != 0;
}

template <size_t B, rte_hash_function HASH> class Cuckoo {
	struct rte_hash *hash;
	size_t slots, occupied;

	/* The values of a batch; the signatures are left in `signatures`. */
	uint64_t look_up(const Key<B> *keys, size_t n, hash_sig_t *signatures, void **values) const
	{
		const void *pointers[BATCH];
		uint64_t hits = 0;
		for (size_t i = 0; i < n; i++) {
			pointers[i] = &keys[i];
			signatures[i] = HASH(&keys[i], B, 0);
		}
		rte_hash_lookup_with_hash_bulk_data(hash, pointers, signatures, (uint32_t)n, &hits, values);
		return hits;
	}

public:
	explicit Cuckoo(size_t slots) : slots(slots)
	{
		struct rte_hash_parameters parameters = {};
		parameters.name = "flows";
		parameters.entries = (uint32_t)slots;
		parameters.key_len = B;
		parameters.hash_func = HASH;
		parameters.socket_id = SOCKET_ID_ANY;
		size_t before = heap_bytes();
		hash = rte_hash_create(&parameters);
		if (hash == nullptr)
			fail("rte_hash_create: %s", rte_strerror(rte_errno));
		if (B % 16 != 0)
			rte_hash_set_cmp_func(hash, differs<B>);
		occupied = heap_bytes() - before;
	}

	void clear() { rte_hash_reset(hash); }

	size_t fill(const Key<B> *keys, size_t n)
	{
		size_t refused = 0;
		for (size_t i = 0; i < n; i++) {
			hash_sig_t signature = HASH(&keys[i], B, 0);
			refused += rte_hash_add_key_with_hash_data(hash, &keys[i], signature, (void *)(i + 1)) != 0;
		}
		return refused;
	}

	void find_or_insert(const Key<B> *keys, size_t count)
	{
		hash_sig_t signatures[BATCH];
		void *values[BATCH];
		for (size_t start = 0; start < count; start += BATCH) {
			size_t n = count - start < BATCH ? count - start : BATCH;
			uint64_t hits = look_up(keys + start, n, signatures, values);
			for (size_t i = 0; i < n; i++)
				if ((hits >> i & 1) == 0)
					rte_hash_add_key_with_hash_data(hash, &keys[start + i], signatures[i], (void *)(start + i + 1));
		}
	}

	void lookup_batch(const Key<B> *keys, size_t n, uint64_t *out) const
	{
		hash_sig_t signatures[BATCH];
		void *values[BATCH];
		uint64_t hits = look_up(keys, n, signatures, values);
		for (size_t i = 0; i < n; i++)
			out[i] = (hits >> i & 1) != 0 ? (uint64_t)values[i] : 0;
	}

	uint64_t lookup(const Key<B> &key) const
	{
		void *value;
		return rte_hash_lookup_with_hash_data(hash, &key, HASH(&key, B, 0), &value) >= 0 ? (uint64_t)value : 0;
	}

	size_t capacity() const { return slots; }
	size_t bytes() const { return occupied; }
	std::string params() const { return std::string(",\"pages\":\"") + (huge ? "2 MB" : "4 KB") + "\""; }
};

template <size_t B> using CuckooCrc = Cuckoo<B, crc<B>>;
template <size_t B> using CuckooJhash = Cuckoo<B, jenkins<B>>;

int main(int argc, char **argv)
{
	Options options = parse(argc, argv);
	start_dpdk(argv[0], options);
	std::string name = options.structure;
	if (name == "rte_hash")
		return serve<CuckooCrc>(options);
	if (name == "rte_hash-jhash")
		return serve<CuckooJhash>(options);
	fail("no structure %s", options.structure);
}
