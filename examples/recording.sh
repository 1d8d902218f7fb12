# Sourced by the examples' record-capture.sh: programs in network namespaces of our own, all of which go when the script ends.
# `namespaces` has their names. shellcheck shell=bash

tag=tm$$
work=$(mktemp -d)
pids=()
in_ns() {
    local name=$1
    shift
    ip netns exec "$tag-$name" "$@" </dev/null
}
# Starts a program in the background; `exec`, so that the process that we know is the program itself.
start_in_ns() {
    local name=$1
    shift
    (exec ip netns exec "$tag-$name" "$@" </dev/null) &
    pids+=($!)
}
# Waits for a condition, ten seconds at most.
wait_for() {
    local tries=100
    until "$@"; do
        tries=$((tries - 1))
        if [ $tries -eq 0 ]; then
            echo "waited in vain for: $*" >&2
            exit 1
        fi
        sleep 0.1
    done
}
clean_up() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for name in "${namespaces[@]}"; do ip netns delete "$tag-$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT

for name in "${namespaces[@]}"; do
    ip netns add "$tag-$name"
    in_ns "$name" ip link set lo up
done
