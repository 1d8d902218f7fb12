/* What DPDK offers only as inline functions or large structures, as plain functions for the Rust side (sys.rs), and the
 * mempool whose store is a queue's stock. Rust and C share `struct rte_mbuf`, `struct tm_stock` and those that calls fill in;
 * both sides check their layout when they are compiled.
 *
 * Errors: a negative errno, and in `words` what DPDK has logged about it.
 */

#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API /* rte_dev_dma_map */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

/* A build of DPDK whose mbufs have no IOVA (RTE_IOVA_IN_MBUF=0) has another layout, and is refused here. */
#define AT(field, offset) _Static_assert(offsetof(struct rte_mbuf, field) == offset, "mbuf layout: " #field)
AT(buf_addr, 0);
AT(buf_iova, 8);
AT(data_off, 16);
AT(refcnt, 18);
AT(nb_segs, 20);
AT(port, 22);
AT(ol_flags, 24);
AT(packet_type, 32);
AT(pkt_len, 36);
AT(data_len, 40);
AT(hash.rss, 44);
AT(buf_len, 54);
AT(pool, 56);
_Static_assert(sizeof(struct rte_mbuf) == 128, "mbuf size");
_Static_assert(RTE_MBUF_F_RX_RSS_HASH == 1 << 1, "mbuf flags");
_Static_assert(RTE_MBUF_F_RX_IP_CKSUM_MASK == (1 << 4 | 1 << 7), "mbuf flags");
_Static_assert(RTE_MBUF_F_RX_OUTER_IP_CKSUM_BAD == 1 << 5, "mbuf flags");
_Static_assert(RTE_MBUF_F_RX_IP_CKSUM_GOOD == 1 << 7, "mbuf flags");

/* The frames that a queue has been lent and the driver does not hold now: the store of the queue's mempool. */
struct tm_stock {
	struct rte_mbuf **stack;
	struct rte_mempool *pool;
	uint32_t count;
	uint32_t room;
	uint16_t port;
	uint16_t queue;
	/* Frames that were freed on another thread than the queue's. */
	uint32_t strays;
	struct rte_mbuf **stray;
	rte_spinlock_t lock;
	/* The most frames that the driver has asked for in a worker's call, in whole chunks. */
	uint32_t most;
	/* Frames that it has had in this call. */
	uint32_t had;
};
_Static_assert(offsetof(struct tm_stock, pool) == 8 && offsetof(struct tm_stock, count) == 16 &&
	offsetof(struct tm_stock, room) == 20 && offsetof(struct tm_stock, port) == 24 &&
	offsetof(struct tm_stock, strays) == 28 && offsetof(struct tm_stock, stray) == 32 &&
	offsetof(struct tm_stock, lock) == 40 && offsetof(struct tm_stock, most) == 44 &&
	offsetof(struct tm_stock, had) == 48 && sizeof(struct tm_stock) == 56, "stock layout");

/* In whole chunks: a driver that asks for a few frames more each time goes without once, and some count that as packets lost. */
#define CHUNK 64u
/* What drivers ask for again and again is less. More than that, a ring's after a drought, is got together for once. */
#define STEADY 512u

/* The longest key of a device's hash that we set. */
#define MOST_KEY 64

/* What a device is. */
struct tm_info {
	char driver[32];
	uint64_t rss; /* what it can hash of a flow */
	uint64_t rss_ip; /* of these, what goes by addresses alone */
	uint32_t min_frame;
	uint16_t mtu;
	uint16_t max_mtu;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t rx_ring;
	uint16_t tx_ring;
	uint8_t mac[6];
	uint8_t up;
	uint8_t rss_key; /* bytes of its hash's key, which is ours; 0: it has its own */
};
_Static_assert(sizeof(struct tm_info) == 72, "info layout");

/* What a device's queues are to be. */
struct tm_wish {
	uint64_t rss; /* once configured: of what the device hashes to choose a queue; 0: it does not */
	uint16_t queues;
	uint16_t mtu; /* 0: as it is */
	uint16_t rx_ring;
	uint16_t tx_ring;
	uint8_t promiscuous;
	uint8_t copies; /* the driver keeps received packets in memory of its own */
	uint8_t by_addresses; /* queues are chosen by addresses alone */
	uint8_t key[MOST_KEY]; /* of the hash that chooses them */
};
_Static_assert(sizeof(struct tm_wish) == 88, "wish layout");

/* Packet memory, in whole pages. */
struct tm_region {
	void *memory;
	size_t len;
};

/* ---- the mempool ---------------------------------------------------------------------------------------------- */

/* The stock whose queue this thread is at work on. Nobody else touches that one. */
static __thread const struct tm_stock *current __attribute__((tls_model("initial-exec")));
/* Stands for all stocks of a device, while it is started or closed: then no queue is at work. */
static const struct tm_stock every;

static inline int
ours(const struct tm_stock *stock)
{
	return likely(current == stock) || current == &every;
}

static int
stray(struct tm_stock *stock, void *const *objects, unsigned int n)
{
	int result = -ENOBUFS;

	rte_spinlock_lock(&stock->lock);
	if (stock->strays + n <= stock->room) {
		memcpy(&stock->stray[stock->strays], objects, n * sizeof(*objects));
		__atomic_store_n(&stock->strays, stock->strays + n, __ATOMIC_RELEASE);
		result = 0;
	}
	rte_spinlock_unlock(&stock->lock);
	return result;
}

static void
gather_strays(struct tm_stock *stock)
{
	rte_spinlock_lock(&stock->lock);
	memcpy(&stock->stack[stock->count], stock->stray, stock->strays * sizeof(*stock->stray));
	stock->count += stock->strays;
	__atomic_store_n(&stock->strays, 0, __ATOMIC_RELEASE);
	rte_spinlock_unlock(&stock->lock);
}

static __rte_noinline int
enqueue_many(struct tm_stock *stock, void *const *objects, unsigned int n)
{
	if (unlikely(!ours(stock)))
		return stray(stock, objects, n);
	if (unlikely(stock->count + n > stock->room))
		return -ENOBUFS;
	memcpy(&stock->stack[stock->count], objects, n * sizeof(*objects));
	stock->count += n;
	return 0;
}

static int
stock_enqueue(struct rte_mempool *pool, void *const *objects, unsigned int n)
{
	struct tm_stock *stock = pool->pool_config;

	/* Many drivers free one by one. */
	if (likely(n == 1) && likely(current == stock) && likely(stock->count < stock->room)) {
		stock->stack[stock->count++] = objects[0];
		return 0;
	}
	return enqueue_many(stock, objects, n);
}

static int
stock_dequeue(struct rte_mempool *pool, void **objects, unsigned int n)
{
	struct tm_stock *stock = pool->pool_config;

	if (unlikely(!ours(stock)))
		return -ENOENT;
	if (unlikely(stock->had + n > stock->most) && current == stock)
		stock->most = RTE_MIN(RTE_ALIGN_CEIL(stock->had + n, CHUNK), stock->room);
	if (unlikely(stock->count < n))
		return -ENOENT;
	stock->had += n;
	if (unlikely(stock->had > STEADY))
		stock->most = RTE_MIN(stock->most, STEADY);
	stock->count -= n;
	memcpy(objects, &stock->stack[stock->count], n * sizeof(*objects));
	return 0;
}

static unsigned int
stock_count(const struct rte_mempool *pool)
{
	const struct tm_stock *stock = pool->pool_config;

	return stock->count + __atomic_load_n(&stock->strays, __ATOMIC_RELAXED);
}

static int
stock_alloc(struct rte_mempool *pool __rte_unused)
{
	return 0;
}

static void
stock_free(struct rte_mempool *pool __rte_unused)
{
}

/* The chunk is the packet memory, for drivers that make the memory of a pool known to their card. The objects are mbufs
 * elsewhere, and come and go. */
static int
stock_populate(struct rte_mempool *pool __rte_unused, unsigned int max, void *address __rte_unused,
	rte_iova_t iova __rte_unused, size_t len __rte_unused, rte_mempool_populate_obj_cb_t *each __rte_unused,
	void *argument __rte_unused)
{
	return max;
}

static const struct rte_mempool_ops stock_ops = {
	.name = "tidemill_stock",
	.alloc = stock_alloc,
	.free = stock_free,
	.enqueue = stock_enqueue,
	.dequeue = stock_dequeue,
	.get_count = stock_count,
	.populate = stock_populate,
};

/* Makes the mempool of `stock`, over `len` bytes of packet memory in `frames` frames. */
int
tm_pool_new(struct tm_stock *stock, const char *name, uint32_t frames, void *memory, size_t len, uint16_t room)
{
	struct rte_pktmbuf_pool_private *private;
	struct rte_mempool *pool;
	int result;

	pool = rte_mempool_create_empty(name, frames, sizeof(struct rte_mbuf), 0, sizeof(*private), SOCKET_ID_ANY, 0);
	if (pool == NULL)
		return -rte_errno;
	private = rte_mempool_get_priv(pool);
	memset(private, 0, sizeof(*private));
	private->mbuf_data_room_size = room;
	result = rte_mempool_set_ops_byname(pool, stock_ops.name, stock);
	if (result == 0)
		result = rte_mempool_populate_iova(pool, memory, (rte_iova_t)(uintptr_t)memory, len, NULL, NULL);
	if (result < 0) {
		rte_mempool_free(pool);
		return result;
	}
	stock->pool = pool;
	return 0;
}

void
tm_pool_free(struct tm_stock *stock)
{
	rte_mempool_free(stock->pool);
	stock->pool = NULL;
}

/* ---- what DPDK says ------------------------------------------------------------------------------------------- */

struct ear {
	FILE *stream;
	char *heard;
	size_t len;
};

/* One thread at a time (sys.rs). */
static void
listen_to(struct ear *ear)
{
	ear->heard = NULL;
	ear->stream = open_memstream(&ear->heard, &ear->len);
	if (ear->stream != NULL)
		rte_openlog_stream(ear->stream);
}

/* Ends listening. What was said becomes one line, lines apart by "; ", if the call failed. */
static int
heard(struct ear *ear, int result, char *words, size_t room)
{
	size_t at = 0;

	rte_openlog_stream(stderr);
	if (room > 0)
		words[0] = '\0';
	if (ear->stream == NULL)
		return result;
	fclose(ear->stream);
	if (result < 0) {
		for (const char *c = ear->heard; *c != '\0' && at + 3 < room; c++) {
			if (*c != '\n')
				words[at++] = *c;
			else if (c[1] != '\0')
				at += (size_t)snprintf(words + at, room - at, "; ");
		}
		if (room > 0)
			words[at] = '\0';
	} else if (rte_log_get_global_level() > RTE_LOG_ERR) {
		fputs(ear->heard, stderr);
	}
	free(ear->heard);
	return result;
}

/* ---- the environment abstraction layer ------------------------------------------------------------------------ */

int
tm_eal(int argc, char **argv, char *words, size_t room)
{
	cpu_set_t cpus;
	struct ear ear;
	int result, nowhere;
	/* Wrong arguments make it print its manual on the standard output, and complain beside the log. */
	int streams[2] = { STDOUT_FILENO, STDERR_FILENO }, saved[2];
	int pinned = pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus);

	rte_log_set_global_level(RTE_LOG_ERR);
	fflush(stdout);
	nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < 2; i++) {
		saved[i] = fcntl(streams[i], F_DUPFD_CLOEXEC, 3);
		if (saved[i] >= 0 && nowhere >= 0)
			dup2(nowhere, streams[i]);
	}
	listen_to(&ear);
	result = rte_eal_init(argc, argv);
	if (result < 0)
		result = rte_errno > 0 ? -rte_errno : -EINVAL;
	else
		result = rte_mempool_register_ops(&stock_ops);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		if (saved[i] >= 0) {
			dup2(saved[i], streams[i]);
			close(saved[i]);
		}
	}
	result = heard(&ear, result, words, room);
	if (nowhere >= 0)
		close(nowhere);
	if (pinned == 0)
		pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	return result;
}

/* ---- devices -------------------------------------------------------------------------------------------------- */

/* Devices that were pulled out. */
static uint8_t gone[RTE_MAX_ETHPORTS];

static int
on_removal(uint16_t port, enum rte_eth_event_type event __rte_unused, void *argument __rte_unused,
	void *answer __rte_unused)
{
	__atomic_store_n(&gone[port], 1, __ATOMIC_RELAXED);
	return 0;
}

static int
find(const char *name, uint16_t *port)
{
	struct rte_eth_dev_info info;
	uint16_t each;

	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(each) {
		if (rte_eth_dev_info_get(each, &info) == 0 && info.device != NULL &&
		    strcmp(rte_dev_name(info.device), name) == 0) {
			*port = each;
			return 0;
		}
	}
	return -ENODEV;
}

/* The port of a device that is there. */
int
tm_find(const char *name, uint16_t *port)
{
	return find(name, port);
}

/* What the device is. */
int
tm_info(uint16_t port, struct tm_info *out)
{
	struct rte_ether_addr mac;
	struct rte_eth_link link;
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	memset(out, 0, sizeof(*out));
	if (result < 0)
		return result;
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
	out->rss = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	out->rss_ip = info.flow_type_rss_offloads & RTE_ETH_RSS_IP;
	out->rss_key = info.hash_key_size <= MOST_KEY ? info.hash_key_size : 0;
	out->min_frame = info.min_rx_bufsize;
	out->max_mtu = info.max_mtu;
	out->max_rx_queues = info.max_rx_queues;
	out->max_tx_queues = info.max_tx_queues;
	out->rx_ring = info.default_rxportconf.ring_size;
	out->tx_ring = info.default_txportconf.ring_size;
	if (rte_eth_dev_get_mtu(port, &out->mtu) < 0)
		out->mtu = RTE_ETHER_MTU;
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	out->up = rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
	return 0;
}

/* The device of that name, which is made or taken if it is not there. `arguments` is the name with its arguments. */
int
tm_probe(const char *name, const char *arguments, uint16_t *port, char *words, size_t room)
{
	struct ear ear;
	int result;

	if (find(name, port) == 0)
		return 0;
	listen_to(&ear);
	result = rte_dev_probe(arguments);
	if (result == 0)
		result = find(name, port);
	if (result == 0) {
		gone[*port] = 0;
		rte_eth_dev_callback_register(*port, RTE_ETH_EVENT_INTR_RMV, on_removal, NULL);
	}
	return heard(&ear, result, words, room);
}

/* Decides the number of queues and what the device does for us. Says the lengths of the rings, by what queues are chosen, and an MTU of 0 if the driver cannot set it. */
int
tm_configure(uint16_t port, struct tm_wish *wish, char *words, size_t room)
{
	/* Drivers keep the address, and read the key when they start. */
	static uint8_t keys[RTE_MAX_ETHPORTS][MOST_KEY];
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	struct ear ear;
	uint16_t mtu = wish->mtu;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	listen_to(&ear);
	memset(&conf, 0, sizeof(conf));
	if (mtu == 0)
		rte_eth_dev_get_mtu(port, &mtu);
	conf.rxmode.mtu = mtu;
	conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
	/* Sent packets are all of the queue's own pool and have one owner each. */
	conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	if (wish->queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH;
		conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
			(wish->by_addresses ? RTE_ETH_RSS_IP : RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
		if (info.hash_key_size > 0 && info.hash_key_size <= MOST_KEY) {
			memcpy(keys[port], wish->key, MOST_KEY);
			conf.rx_adv_conf.rss_conf.rss_key = keys[port];
			conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
		}
	}
	result = rte_eth_dev_configure(port, wish->queues, wish->queues, &conf);
	/* What was made of it, not what was asked for. */
	if (result == 0)
		result = rte_eth_dev_conf_get(port, &conf);
	wish->rss = conf.rxmode.mq_mode & RTE_ETH_MQ_RX_RSS_FLAG ? conf.rx_adv_conf.rss_conf.rss_hf : 0;
	if (result == 0 && wish->mtu != 0) {
		result = rte_eth_dev_set_mtu(port, mtu);
		if (result == -ENOTSUP) {
			wish->mtu = 0;
			result = 0;
		}
	}
	if (result == 0)
		result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &wish->rx_ring, &wish->tx_ring);
	return heard(&ear, result, words, room);
}

/* Sets up the queues with their stocks, and starts the device. */
int
tm_start(uint16_t port, const struct tm_wish *wish, struct tm_stock *const *stocks, char *words, size_t room)
{
	struct rte_mempool *pool, *copies = NULL;
	struct rte_eth_dev_info info;
	char name[RTE_MEMPOOL_NAMESIZE];
	struct ear ear;
	int socket = rte_eth_dev_socket_id(port);
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	listen_to(&ear);
	current = &every;
	for (uint16_t q = 0; result == 0 && q < wish->queues; q++) {
		pool = stocks[q]->pool;
		if (wish->copies) {
			/* Such a driver reuses the pool when it is opened again. */
			snprintf(name, sizeof(name), "tm_copies_%u_%u", port, q);
			copies = rte_mempool_lookup(name);
			if (copies == NULL)
				copies = rte_pktmbuf_pool_create(name, 8191, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
			pool = copies;
			if (pool == NULL) {
				result = -rte_errno;
				break;
			}
		}
		result = rte_eth_rx_queue_setup(port, q, wish->rx_ring, socket, NULL, pool);
		if (result == 0)
			result = rte_eth_tx_queue_setup(port, q, wish->tx_ring, socket, NULL);
	}
	if (result == 0)
		result = rte_eth_dev_start(port);
	if (result == 0 && wish->promiscuous) {
		result = rte_eth_promiscuous_enable(port);
		/* Devices without an address filter cannot. */
		if (result == -ENOTSUP)
			result = 0;
	}
	current = NULL;
	return heard(&ear, result, words, room);
}

/* Closes the device and lets go of it, and of memory that no other device has. */
int
tm_close(uint16_t port, const struct tm_region *regions, size_t count, char *words, size_t room)
{
	struct rte_eth_dev_info info;
	struct ear ear;
	int result, removed = 0;

	listen_to(&ear);
	current = &every;
	memset(&info, 0, sizeof(info));
	rte_eth_dev_info_get(port, &info);
	rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_RMV, on_removal, NULL);
	result = rte_eth_dev_stop(port);
	if (result == -ENOTSUP)
		result = 0;
	if (rte_eth_dev_close(port) < 0 && result == 0)
		result = -EIO;
	for (size_t i = 0; i < count; i++) {
		if (info.device != NULL)
			rte_dev_dma_unmap(info.device, regions[i].memory, (uint64_t)(uintptr_t)regions[i].memory, regions[i].len);
		rte_extmem_unregister(regions[i].memory, regions[i].len);
	}
	if (info.device != NULL)
		removed = rte_dev_remove(info.device);
	current = NULL;
	return heard(&ear, result < 0 ? result : removed, words, room);
}

/* Makes packet memory known to DPDK, if this is the first device that has it, and to the device if that reads and writes memory itself. */
int
tm_map(uint16_t port, const struct tm_region *region, size_t page, int first)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	if (first && rte_extmem_register(region->memory, region->len, NULL, 0, page) < 0)
		return -rte_errno;
	if (rte_dev_dma_map(info.device, region->memory, (uint64_t)(uintptr_t)region->memory, region->len) < 0 &&
	    rte_errno != ENOTSUP) {
		result = -rte_errno;
		if (first)
			rte_extmem_unregister(region->memory, region->len);
		return result;
	}
	return 0;
}

/* 1: the link is up; 0: it is down; -1: the device is gone. */
int
tm_link(uint16_t port)
{
	struct rte_eth_link link;

	if (__atomic_load_n(&gone[port], __ATOMIC_RELAXED))
		return -1;
	/* A device that cannot say is up. */
	if (rte_eth_link_get_nowait(port, &link) < 0)
		return 1;
	return link.link_status == RTE_ETH_LINK_UP;
}

/* What the device itself has counted: packets missed, packets that were bad, frames that the driver asked for in vain;
 * packets not sent. */
int
tm_stats(uint16_t port, uint64_t out[4])
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result < 0)
		return result;
	out[0] = stats.imissed;
	out[1] = stats.ierrors;
	out[2] = stats.rx_nombuf;
	out[3] = stats.oerrors;
	return 0;
}

/* ---- packets -------------------------------------------------------------------------------------------------- */

static inline void
enter(struct tm_stock *stock)
{
	current = stock;
	stock->had = 0;
	if (unlikely(__atomic_load_n(&stock->strays, __ATOMIC_ACQUIRE) != 0))
		gather_strays(stock);
}

uint16_t
tm_rx(struct tm_stock *stock, struct rte_mbuf **packets, uint16_t n)
{
	enter(stock);
	n = rte_eth_rx_burst(stock->port, stock->queue, packets, n);
	current = NULL;
	return n;
}

uint16_t
tm_tx(struct tm_stock *stock, struct rte_mbuf **packets, uint16_t n)
{
	enter(stock);
	n = rte_eth_tx_burst(stock->port, stock->queue, packets, n);
	current = NULL;
	return n;
}

/* Takes up what other threads have freed, once the device is closed. */
void
tm_gather(struct tm_stock *stock)
{
	gather_strays(stock);
}

/* Copies a packet out of memory that is not the queue's, and frees that. Returns its length; if that is more than `room`,
 * nothing is copied. */
uint32_t
tm_copy(struct tm_stock *stock, struct rte_mbuf *packet, uint8_t *to, uint32_t room)
{
	uint32_t len = packet->pkt_len;

	current = stock;
	if (len <= room) {
		const void *at = rte_pktmbuf_read(packet, 0, len, to);

		if (at != NULL && at != to)
			memcpy(to, at, len);
	}
	rte_pktmbuf_free(packet);
	current = NULL;
	return len;
}
