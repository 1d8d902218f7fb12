/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The C++ maps: boost::unordered_flat_map and absl::flat_hash_map. They have no batches; absl can prefetch, as a variant.
 */
#include "runner.hpp"

#include <absl/container/flat_hash_map.h>
#include <boost/unordered/unordered_flat_map.hpp>

/* Folded multiplications, as in the fastest hashes of short keys that are good enough for these maps: two words each. */
template <size_t B> struct Hash {
	using is_avalanching = std::true_type; /* boost: no second mixing needed */

	static uint64_t fold(uint64_t a, uint64_t b)
	{
		unsigned __int128 product = (unsigned __int128)a * b;
		return (uint64_t)product ^ (uint64_t)(product >> 64);
	}

	size_t operator()(const Key<B> &key) const
	{
		constexpr uint64_t SECRET[] = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0,
					       0x082efa98ec4e6c89, 0x452821e638d01377, 0xbe5466cf34e90c6c};
		uint64_t words[(B + 15) / 16 * 2] = {};
		memcpy(words, key.byte, B);
		uint64_t hash = 0;
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i += 2)
			hash ^= fold(words[i] ^ SECRET[i], words[i + 1] ^ SECRET[i + 1]);
		return hash;
	}
};

template <class MAP, size_t B, bool PREFETCH> class Map {
	MAP map;
	size_t slots, keys_kilobytes = huge_kilobytes(); /* of the keys, which are there before the table */

	/* Transparent huge pages are the allocator's choice: what it got stands in the process's own books. */
	static size_t huge_kilobytes()
	{
		size_t kilobytes = 0;
		char line[256];
		FILE *file = fopen("/proc/self/smaps_rollup", "r");
		while (file != nullptr && fgets(line, sizeof(line), file) != nullptr)
			sscanf(line, "AnonHugePages: %zu kB", &kilobytes);
		if (file != nullptr)
			fclose(file);
		return kilobytes;
	}

public:
	explicit Map(size_t slots) : slots(slots) {}

	/* Some maps give their memory back when cleared. */
	void clear()
	{
		size_t entries = map.size();
		map.clear();
		map.reserve(entries);
	}

	size_t fill(const Key<B> *keys, size_t n)
	{
		map.reserve(n);
		for (size_t i = 0; i < n; i++)
			map.try_emplace(keys[i], i + 1);
		return n - map.size();
	}

	void find_or_insert(const Key<B> *keys, size_t n) { fill(keys, n); }

	uint64_t lookup(const Key<B> &key) const
	{
		auto found = map.find(key);
		return found == map.end() ? 0 : found->second;
	}

	void lookup_batch(const Key<B> *keys, size_t n, uint64_t *out) const
	{
		if constexpr (PREFETCH)
			for (size_t i = 0; i < n; i++)
				map.prefetch(keys[i]);
		for (size_t i = 0; i < n; i++)
			out[i] = lookup(keys[i]);
	}

	size_t capacity() const { return map.bucket_count(); }
	size_t bytes() const { return map.bucket_count() * (sizeof(std::pair<Key<B>, uint64_t>) + 1); }

	std::string params() const
	{
		bool huge = huge_kilobytes() >= keys_kilobytes + (bytes() >> 10) / 10 * 9;
		return std::string(",\"pages\":\"") + (huge ? "2 MB, transparent" : "4 KB") + "\"";
	}
};

template <size_t B> using Boost = Map<boost::unordered_flat_map<Key<B>, uint64_t, Hash<B>>, B, false>;
template <size_t B> using Absl = Map<absl::flat_hash_map<Key<B>, uint64_t, Hash<B>>, B, false>;
template <size_t B> using AbslPrefetch = Map<absl::flat_hash_map<Key<B>, uint64_t, Hash<B>>, B, true>;

int main(int argc, char **argv)
{
	Options options = parse(argc, argv);
	std::string name = options.structure;
	if (name == "boost-flat")
		return serve<Boost>(options);
	if (name == "absl-flat")
		return serve<Absl>(options);
	if (name == "absl-flat-prefetch")
		return serve<AbslPrefetch>(options);
	fail("no structure %s", options.structure);
}
