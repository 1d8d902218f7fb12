#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# DPDK's testpmd as a runner (protocol: bench/README.md): forwards between two net_null devices on one core as it is, without
# looking at packets. `run io` forwards for about a second. Needs Debian's dpdk-dev. testpmd keeps one CPU for its prompt, so it takes two.
set -u
burst=32
while [ $# -gt 1 ]; do
	case $1 in
	--burst) burst=$2 ;;
	esac
	shift 2
done
pages="--no-huge --no-shconf -m 2048" named="4 KB"
free=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages 2>/dev/null || echo 0)
[ "$free" -ge 256 ] && pages="--in-memory" named="2 MB"
# The last CPU forwards, any other has the prompt.
cpus=$(taskset -cp $$ | sed 's/.*: //')
last=${cpus##*[,-]}
first=${cpus%%[,-]*}
# What it prints goes through a pipe: without stdbuf it would keep its answers until much later.
# shellcheck disable=SC2086 -- words on purpose
coproc pmd { exec stdbuf -oL dpdk-testpmd -l "$first,$last" --main-lcore "$first" --no-pci --no-telemetry $pages --log-level=error \
	--vdev=net_null0,size=60 --vdev=net_null1,size=60 -- -i --nb-cores=1 --forward-mode=io --burst="$burst" 2>&1; }
trap 'kill $pmd_PID 2>/dev/null' EXIT

# Reads until a line holds $1; what was read is in $seen.
await() {
	seen=
	while IFS= read -r -t 20 -u "${pmd[0]}" line; do
		seen+=$line$'\n'
		case $line in *"$1"*) return 0 ;; esac
	done
	printf '{"v":1,"error":"testpmd: no %s"}\n' "$1"
	exit 1
}
tell() { printf '%s\n' "$1" >&"${pmd[1]}"; }

# An answer to a question shows that it is ready.
tell "show config fwd"
await "io packet forwarding"
printf '{"v":1,"ready":true,"subject":"peer:testpmd-io","params":{"burst":%s,"pages":"%s"}}\n' "$burst" "$named"
while read -r word way; do
	case "$word $way" in
	"run io")
		tell start
		await "io packet forwarding"
		begin=$EPOCHREALTIME
		sleep 1
		end=$EPOCHREALTIME
		tell stop
		await "Accumulated forward statistics"
		await "RX-packets"
		packets=$(printf '%s' "$seen" | sed -n 's/.*RX-packets: *\([0-9]*\).*/\1/p' | tail -1)
		await "Done."
		awk -v p="$packets" -v b="$begin" -v e="$end" 'BEGIN {
			printf "{\"v\":1,\"bench\":\"port\",\"subject\":\"peer:testpmd-io\",\"case\":\"io\",\"lookups\":%d,\"seconds\":%.6f,\"checksum\":\"\"}\n", p, e - b }'
		;;
	"quit "*) tell quit; exit 0 ;;
	*) printf '{"v":1,"error":"unknown command: use run io"}\n' ;;
	esac
done
