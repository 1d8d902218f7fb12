#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Open vSwitch with its DPDK datapath as a runner (protocol: bench/README.md), between two net_null devices, in user space and a folder of its own. `run NAME` lets
# front.c send the packets of a traffic case; a rate is packets over the time that the switch's thread had a processor, less the part of it that its own
# statistics (pmd-stats-show) call idle. Every packet must have met its rule, by the rules' own counters. Needs Debian's openvswitch-switch-dpdk, and root for 2 MB pages.
#
#   ovs.sh --structure ovs|ovs-smc|ovs-avx512 --front front.so --folder DIR --cpu N --seconds S --cases NAME:FLOWS:RULES,...
set -u
structure=ovs front='' folder='' cpu=1 seconds=1 cases=''
while [ $# -gt 1 ]; do
	case $1 in
	--structure) structure=$2 ;;
	--front) front=$2 ;;
	--folder) folder=$2 ;;
	--cpu) cpu=$2 ;;
	--seconds) seconds=$2 ;;
	--cases) cases=$2 ;;
	esac
	shift 2
done
seed=1
error() {
	printf '{"v":1,"error":"ovs: %s"}\n' "$(printf '%s' "$1" | tr '\n"\\' "  /" | cut -c1-400)"
	exit 1
}
mkdir -p "$folder" || exit 1
# Sockets' names are short: their folder is one of its own.
export OVS_RUNDIR
OVS_RUNDIR=$(mktemp -d "${TMPDIR:-/tmp}/ovs-XXXXXX") || exit 1
export OVS_LOGDIR=$folder OVS_DBDIR=$folder OVS_SYSCONFDIR=$folder TIDEMILL_FRONT=$folder
db=unix:$OVS_RUNDIR/db.sock control=$OVS_RUNDIR/vswitchd.ctl
rm -f "$folder"/conf.db "$folder"/.conf.db.* "$folder/order" "$folder/done" "$folder/vswitchd.log"
children=()
end() {
	for ((i = ${#children[@]} - 1; i >= 0; i--)); do
		kill "${children[i]}" 2>/dev/null
		wait "${children[i]}" 2>/dev/null
	done
	rm -rf "$OVS_RUNDIR"
}
trap end EXIT
trap 'exit 1' TERM INT HUP

# Calls a program until it succeeds, 20 seconds at most.
patiently() {
	local said
	for _ in $(seq 200); do
		said=$("$@" 2>&1) && return 0
		sleep 0.1
	done
	error "$*: $said"
}
vsctl() { ovs-vsctl --db="$db" --timeout=30 "$@"; }
appctl() { ovs-appctl --timeout=30 -t "$control" "$@"; }
ofctl() { ovs-ofctl "$@"; }

vswitchd=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk
[ -x "$vswitchd" ] || error "$vswitchd is not there: apt-get install openvswitch-switch-dpdk"
said=$(ovsdb-tool create "$folder/conf.db" /usr/share/openvswitch/vswitch.ovsschema 2>&1) || error "$said"
ovsdb-server "$folder/conf.db" --remote="punix:$OVS_RUNDIR/db.sock" --unixctl="$OVS_RUNDIR/db.ctl" \
	--log-file="$folder/ovsdb.log" >/dev/null 2>&1 </dev/null &
children+=($!)
patiently vsctl --no-wait init
pages="--in-memory" named="2 MB"
free=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages 2>/dev/null || echo 0)
[ "$free" -ge 512 ] || pages="--no-huge --no-shconf -m 2048" named="4 KB"
other=0
[ "$cpu" -eq 0 ] && other=1
vsctl --no-wait set Open_vSwitch . other_config:dpdk-init=true \
	other_config:dpdk-extra="-d $front --no-pci --no-telemetry $pages" \
	other_config:dpdk-lcore-mask="$(printf 0x%x $((1 << other)))" \
	other_config:pmd-cpu-mask="$(printf 0x%x $((1 << cpu)))" \
	other_config:smc-enable="$([ "$structure" = ovs-smc ] && echo true || echo false)" || error "no configuration"
"$vswitchd" "$db" --disable-system --unixctl="$control" --log-file="$folder/vswitchd.log" >/dev/null 2>&1 </dev/null &
children+=($!)
begin=$EPOCHREALTIME
patiently appctl version
why() { error "$1: $(grep -E 'ERR|WARN|EMER' "$folder/vswitchd.log" | tail -4)"; }
vsctl add-br br -- set bridge br datapath_type=netdev fail-mode=secure \
	-- add-port br in -- set Interface in type=dpdk ofport_request=1 options:dpdk-devargs=net_null0,size=60 \
	-- add-port br out -- set Interface out type=dpdk ofport_request=2 options:dpdk-devargs=net_null1,size=60,no-rx=1 >/dev/null 2>&1 ||
	why "no bridge"
[ -z "$(vsctl get Interface in error | tr -d '[]"')" ] || why "no device"
vectors=none
if [ "$structure" = ovs-avx512 ]; then
	# Each by what it calls its vector form; miniflows by the form that it finds to fit the traffic.
	vectors=$(appctl dpif-netdev/subtable-lookup-prio-set avx512_gather 5 2>&1 && appctl dpif-netdev/dpif-impl-set dpif_avx512 2>&1 &&
		appctl dpif-netdev/miniflow-parser-set study 2>&1) || error "this build has no vectors: $vectors"
	vectors=avx512
fi

number=0 had_ns=0 given=0 counts=()
# Gives front.c an order and waits until it has been taken on.
order() {
	number=$((number + 1))
	printf '%s %s %s %s %s\n' "$number" "$1" "$2" "$3" "$seed" >"$folder/order.new"
	mv "$folder/order.new" "$folder/order"
	for _ in $(seq 2000); do
		local done=()
		[ -e "$folder/done" ] && read -ra done <"$folder/done"
		if [ "${done[0]:-}" = "$number" ]; then
			had_ns=${done[1]} given=${done[2]}
			counts=("${done[@]:3:$3}")
			return
		fi
		sleep 0.005
	done
	why "no packets"
}

# The rules of a case with so many, as `tidemill bench classify` has them.
rules() {
	for ((i = 0; i < $1; i++)); do
		printf 'priority=100,ip,nw_dst=%s.0.0.0/%s actions=output:2\n' $((16 + i)) $((9 + i))
	done
}

# A number of the statistics of the packets' thread.
stat() { awk -v what="$1" '/^pmd thread/ {on = 1} /^main thread/ {on = 0} on && index($0, what ":") {sub(/.*: */, ""); print $1; exit}' <<<"$stats"; }

order 0 1 1
printf '{"v":1,"ready":true,"subject":"peer:%s","build_seconds":%s,"params":{"pages":"%s","version":"%s","vectors":"%s","seconds":%s}}\n' "$structure" \
	"$(awk -v b="$begin" -v e="$EPOCHREALTIME" 'BEGIN {printf "%.2f", e - b}')" "$named" \
	"$("$vswitchd" --version | sed -n 's/.*(Open vSwitch) //p')" "$vectors" "$seconds"
while read -r word name; do
	case "$word" in
	run)
		flows='' count=''
		for case in ${cases//,/ }; do
			IFS=: read -r of f c <<<"$case"
			[ "$of" = "$name" ] && flows=$f count=$c
		done
		if [ -z "$flows" ]; then
			printf '{"v":1,"error":"unknown case: use one of %s"}\n' "$cases"
			continue
		fi
		rules "$count" >"$folder/flows"
		said=$(ofctl del-flows br 2>&1 && ofctl add-flows br "$folder/flows" 2>&1) || error "$said"
		# What is cached belongs to rules that have gone.
		appctl revalidator/purge >/dev/null || error "flows are not purged"
		order 1 "$flows" "$count"
		sleep "$seconds"
		appctl dpif-netdev/pmd-stats-clear >/dev/null || error "no statistics"
		order 2 "$flows" "$count"
		since_ns=$had_ns from=$given
		sleep "$seconds"
		stats=$(appctl dpif-netdev/pmd-stats-show) || error "no statistics"
		order 0 "$flows" "$count"
		# What the datapath has counted is added to the rules.
		for _ in 1 2 3 4 5; do
			appctl revalidator/wait >/dev/null || error "no revalidation"
			met=$(ofctl --no-names dump-flows br | sed -n 's/.*n_packets=\([0-9]*\),.*nw_dst=\([0-9]*\)\..*/\2 \1/p' | sort -n | awk '{printf "%s ", $2}')
			[ "$met" = "$(printf '%s ' "${counts[@]}")" ] && break
		done
		[ "$met" = "$(printf '%s ' "${counts[@]}")" ] || error "of the rules ${counts[*]} packets were sent, their counters say $met"
		awk -v packets=$((given - from)) -v ns=$((had_ns - since_ns)) -v name="$name" -v sum="$flows/$count" -v subject="$structure" \
			-v received="$(stat 'packets received')" -v busy="$(stat 'processing cycles')" -v idle="$(stat 'idle cycles')" \
			-v emc="$(stat 'emc hits')" -v smc="$(stat 'smc hits')" -v mega="$(stat 'megaflow hits')" 'BEGIN {
			if (packets <= 0 || ns <= 0 || received + 0 == 0 || busy + 0 == 0) { print "{\"v\":1,\"error\":\"ovs: no packets in its statistics\"}"; exit }
			printf "{\"v\":1,\"bench\":\"classify\",\"subject\":\"peer:%s\",\"case\":\"%s\",\"lookups\":%d,\"seconds\":%.6f,\"checksum\":\"%s\"", subject, name, packets, ns / 1e9 * busy / (busy + idle), sum
			printf ",\"cycles\":%.1f,\"emc\":%.4f,\"smc\":%.4f,\"megaflow\":%.4f,\"idle\":%.4f}\n", busy / received, emc / received, smc / received, mega / received, idle / (idle + busy) }'
		;;
	quit) exit 0 ;;
	*) printf '{"v":1,"error":"unknown command: use run NAME or quit"}\n' ;;
	esac
done
