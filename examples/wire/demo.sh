#!/usr/bin/env bash
# Tidemill as the router between two hosts: three network namespaces, two virtual cables, the configuration beside this
# file. Pings, floods and sends TCP through the router, and shows what it knows. Root; needs iproute2 and ping, and for TCP
# the perl that Debian and its relatives always have. Removes everything it made, also on Ctrl-C.
#
#   left 10.1.0.2 ---- 10.1.0.1 [ router ] 10.2.0.1 ---- 10.2.0.2 right
#        fd00:1::2     fd00:1::1           fd00:2::1     fd00:2::2
#
#   cargo build --release && sudo examples/wire/demo.sh [PATH OF tidemill]
#   sudo ROUTER=kernel examples/wire/demo.sh      # Linux forwards instead, to compare
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
router=${ROUTER:-tidemill}
tidemill=${1:-$here/../../target/release/tidemill}
if [ "$(id -u)" -ne 0 ]; then
    echo "demo.sh: not root: it makes network namespaces; use sudo" >&2
    exit 1
fi
if [ "$router" = tidemill ] && [ ! -x "$tidemill" ]; then
    echo "demo.sh: there is no $tidemill: cargo build --release, or give the path of tidemill" >&2
    exit 1
fi

tag=tm-demo-$$
work=$(mktemp -d)
pids=()
# Runs a command in the namespace of a host or the router.
at() {
    local name=$1
    shift
    ip netns exec "$tag-$name" "$@" </dev/null
}
# Starts one in the background; `exec`, so that the process that we know is the program itself.
start_at() {
    local name=$1
    shift
    (exec ip netns exec "$tag-$name" "$@" </dev/null) &
    pids+=($!)
}
clean_up() {
    trap '' INT TERM
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    for name in left router right; do ip netns delete "$tag-$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
show() {
    echo
    echo "\$ ${*/#"$tidemill"/tidemill}"
    "$@"
}

# The wires. The router's side of them has no addresses of the kernel's, not even link-local ones.
for name in left router right; do
    ip netns add "$tag-$name"
    at "$name" ip link set lo up
    at "$name" sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad'
done
if [ "$router" = kernel ]; then
    at router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
else
    at router sh -c 'echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'
fi
wire() {
    local host=$1 net=$2
    ip link add "tm-$host" netns "$tag-router" type veth peer name "$host" netns "$tag-$host"
    at router ip link set "tm-$host" up
    at "$host" ip link set "$host" up
    at "$host" ip address add "10.$net.0.2/24" dev "$host"
    at "$host" ip address add "fd00:$net::2/64" dev "$host" nodad
    at "$host" ip route add default via "10.$net.0.1"
    at "$host" ip route add default via "fd00:$net::1"
    if [ "$router" = kernel ]; then
        at router ip address add "10.$net.0.1/24" dev "tm-$host"
        at router ip address add "fd00:$net::1/64" dev "tm-$host" nodad
    fi
}
wire left 1
wire right 2

if [ "$router" = tidemill ]; then
    cp "$here/router.toml" "$work"
    export TIDEMILL_SOCKET=$work/router.sock
    start_at router "$tidemill" run "$work/router.toml" >"$work/result"
    running=${pids[0]}
    for _ in $(seq 100); do
        [ ! -S "$TIDEMILL_SOCKET" ] || break
        kill -0 "$running" 2>/dev/null || exit 1
        sleep 0.1
    done
fi

show at left ping -n -c 20 -i 0.05 10.2.0.2
show at left ping -n -c 20 -i 0.05 fd00:2::2
show at left ping -n -q -f -c 20000 -s 1400 10.2.0.2

# The server says when it listens, and at the end how much it got.
receiver='
    use IO::Socket::INET;
    my $server = IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0", LocalPort => 9000, ReuseAddr => 1) or die "listen: $!\n";
    open my $ready, ">", shift or die;
    my $client = $server->accept;
    my $bytes = 0;
    while (my $got = sysread $client, my $buffer, 1 << 20) { $bytes += $got }
    syswrite $client, $bytes;
'
sender='
    use IO::Socket::INET;
    my $socket = IO::Socket::INET->new(PeerAddr => "10.2.0.2", PeerPort => 9000) or die "connect: $!\n";
    my ($left, $block) = (200_000_000, "x" x 1_000_000);
    while ($left > 0) {
        my $sent = syswrite $socket, $block, $left < 1_000_000 ? $left : 1_000_000;
        die "send: $!\n" unless $sent;
        $left -= $sent;
    }
    shutdown $socket, 1;
    my $got = <$socket>;
    die "$got of 200000000 bytes arrived\n" unless $got == 200_000_000;
'
tcp() {
    local start microseconds
    rm -f "$work/ready"
    start_at right perl -e "$receiver" "$work/ready"
    until [ -e "$work/ready" ]; do sleep 0.02; done
    start=${EPOCHREALTIME/[^0-9]/}
    at left perl -e "$sender"
    microseconds=$((${EPOCHREALTIME/[^0-9]/} - start))
    echo "TCP, offloads $1: 200 MB in $((microseconds / 1000)) ms, $((1600000000 / microseconds)) Mb/s"
}
if command -v perl >/dev/null; then
    echo
    # With the hosts' offloads, which hand over 64 KB at a time; then without: packets as on a real wire.
    tcp on
    if command -v ethtool >/dev/null; then
        for name in left right; do at $name ethtool -K $name tx off sg off tso off gso off gro off >/dev/null; done
        tcp off
    fi
fi

if [ "$router" = tidemill ]; then
    show "$tidemill" show neighbors
    show "$tidemill" show routes
    show "$tidemill" show drops
    show "$tidemill" stop
    wait "$running"
    tail -n 2 "$work/result"
fi
