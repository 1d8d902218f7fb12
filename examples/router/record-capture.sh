#!/usr/bin/env bash
# Records capture.pcapng.zst's packets: what a router between two networks receives while real programs talk across it.
# Run by `cargo xtask record-capture router`, which also checks and compresses the result. Root; Debian packages: see
# `cargo xtask setup --recording`.
#
#   client ---- router ---- far ----(MTU 1400)---- server
#     198.18.1.0/24   198.18.2.0/24   198.18.3.0/24       the ranges for such tests: RFC 2544,
#     2001:2:0:1::/64 2001:2:0:2::/64 2001:2:0:3::/64     and RFC 5180 for IPv6
#
# The capture is taken in `router` on both interfaces, arriving packets only: each packet once, as a router's ports get it.
# `far` is there to send what only routers send: time exceeded, fragmentation needed, packet too big.
set -euo pipefail
output=$1/capture.pcapng

namespaces=(client router far server)
# shellcheck source=examples/recording.sh
source "$(dirname "$0")/../recording.sh"

for name in "${namespaces[@]}"; do
    in_ns "$name" sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
        net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv6.icmp.ratelimit=0
done

# Connects two namespaces by a veth pair: link NETWORK LEFT RIGHT MTU; LEFT is host 1, RIGHT host 2.
link() {
    local net=$1 mtu=$4 host=1 side peer
    ip link add "to-$3" mtu "$mtu" address "02:00:00:00:0$net:01" netns "$tag-$2" \
        type veth peer name "to-$2" mtu "$mtu" address "02:00:00:00:0$net:02" netns "$tag-$3"
    for side in "$2 to-$3" "$3 to-$2"; do
        read -r side peer <<<"$side"
        # Without offloads packets are captured as they would be on a wire: no larger than the MTU, checksums filled in.
        in_ns "$side" ethtool -K "$peer" tx off rx off sg off tso off gso off gro off >/dev/null 2>&1
        in_ns "$side" ip address add "198.18.$net.$host/24" dev "$peer"
        in_ns "$side" ip address add "2001:2:0:$net::$host/64" dev "$peer" nodad
        in_ns "$side" ip link set "$peer" up
        host=2
    done
}
link 1 client router 1500
link 2 router far 1500
link 3 far server 1400

# route NAMESPACE NETWORK-AND-HOST...: a default route, or routes to single networks via a host.
route() {
    in_ns "$1" ip route add "$2" via "198.18.$4.$5"
    in_ns "$1" ip -6 route add "$3" via "2001:2:0:$4::$5"
}
route client default default 1 2
route router 198.18.3.0/24 2001:2:0:3::/64 2 2
route far 198.18.1.0/24 2001:2:0:1::/64 2 1
route server default default 3 1

# What the server serves: pages, a file of some 300 KB, names.
seq 1 50000 >"$work/numbers.txt"
for page in 1 2 3 4; do printf '<h1>page %s</h1>\n' "$page" >"$work/$page.html"; done
for bind in 198.18.3.2 2001:2:0:3::2; do
    start_in_ns server python3 -m http.server --bind "$bind" --directory "$work" 80 >/dev/null 2>&1
done
long=$(printf 'long-text-%.0s' {1..24})
start_in_ns server dnsmasq --keep-in-foreground --no-resolv --no-hosts --conf-file=/dev/null --user=root \
    --host-record=www.example.test,198.18.3.2,2001:2:0:3::2 --cname=web.example.test,www.example.test \
    --mx-host=example.test,www.example.test,10 --txt-record=example.test,"$long","$long","$long","$long","$long","$long"

captures=()
for interface in client far; do
    start_in_ns router tcpdump --time-stamp-precision=nano -Z root -Q in -U -s 0 -i "to-$interface" \
        -w "$work/$interface.pcap" 2>"$work/$interface.log"
    captures+=($!)
    wait_for grep -q 'listening on' "$work/$interface.log"
done
listens() { in_ns server ss "-Hln$1" "sport = :$2" >"$work/ss" && [ "$(wc -l <"$work/ss")" -ge 2 ]; }
wait_for listens t 80
wait_for listens u 53

quietly() { in_ns client timeout 5 "$@" >/dev/null 2>&1 || true; }
for server in 198.18.3.2 2001:2:0:3::2; do
    for size in 0 18 56 200 512 1000 1300; do quietly ping -c 3 -i 0.02 -s "$size" "$server"; done
    quietly ping -c 3 -i 0.02 -s 3000 "$server"             # fragments, both ways
    quietly ping -c 3 -i 0.02 -M 'do' -s 1420 "$server"     # fragmentation needed, packet too big
    quietly ping -c 2 -i 0.02 -t 1 "$server"                # dies in the router
    quietly ping -c 2 -i 0.02 -t 2 "$server"                # dies behind it
    quietly traceroute -n -q 2 -w 1 -z 0 "$server"          # UDP, ends with port unreachable
    quietly traceroute -n -I -q 1 -w 1 "$server" 300
    quietly traceroute -n -T -p 80 -q 1 -w 1 "$server"
    quietly traceroute -n -q 1 -w 1 -F -m 4 "$server" 1000
    quietly traceroute -n -q 1 -w 1 -m 4 "$server" 4000     # UDP fragments
    for query in 'www.example.test A' 'www.example.test AAAA' 'web.example.test A' 'example.test MX' 'nowhere.test A'; do
        # shellcheck disable=SC2086 # a name and a type
        quietly dig +tries=1 +time=1 "@$server" $query
    done
    quietly dig +tries=1 +time=1 "@$server" example.test TXT               # with EDNS: a large answer
    quietly dig +tries=1 +time=1 +noedns "@$server" example.test TXT       # truncated, so asked again over TCP
    quietly dig +tries=1 +time=1 +tcp "@$server" www.example.test A
    url=http://$server
    [[ $server == *:* ]] && url=http://[$server]
    quietly curl -s "$url/1.html" "$url/2.html" "$url/3.html" "$url/none.html"
    quietly curl -s -I "$url/4.html"
    quietly curl -s -r 1000-20000 "$url/numbers.txt"
    quietly curl -s "$url/numbers.txt"
    quietly curl -s "$url:81/"                              # refused: a reset
done
in_ns server timeout 5 ping -c 3 -i 0.02 198.18.1.1 >/dev/null
in_ns server timeout 5 ping -c 3 -i 0.02 2001:2:0:1::1 >/dev/null
sleep 1

# tcpdump has written each packet at once (-U).
for pid in "${captures[@]}"; do
    kill -INT "$pid"
    wait "$pid" || true
done
mergecap -F pcapng -w "$output" "$work/client.pcap" "$work/far.pcap"
