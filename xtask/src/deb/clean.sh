# What runs as root in the clean system, as a unit of its own. What is printed is what the trial says; the first thing that is wrong ends it.
set -eE
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
trap 'echo "clean: line $LINENO failed: $BASH_COMMAND"' ERR
die() {
    journalctl --no-pager -n 40 -u 'tidemill*' || true
    echo "clean: $*"
    exit 1
}
wait_for() { # SECONDS COMMAND
    for _ in $(seq $(($1 * 10))); do
        if eval "$2"; then return 0; fi
        sleep 0.1
    done
    die "not within $1 s: $2"
}
property() { systemctl show -p "$2" --value "$1"; }
# Quiet unless it fails: what apt says of its progress is long.
apt() {
    apt-get -q -y -o Dpkg::Use-Pty=0 "$@" > /trial/apt 2>&1 || { cat /trial/apt; die "apt-get $*"; }
}
# Every file with what is in it, every link with where it leads, every folder; but for what dpkg, useradd, the linker and systemd write for themselves.
files() {
    find / -xdev -mindepth 1 \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /trial \
        -o -path /var/log -o -path /var/backups -o -path /var/cache -o -path /var/tmp -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/systemd \
        -o -path '/etc/passwd*' -o -path '/etc/group*' -o -path '/etc/shadow*' -o -path '/etc/gshadow*' -o -path '/etc/sub[ug]id*' \
        -o -path /etc/.pwd.lock -o -path /etc/ld.so.cache -o -path /etc/resolv.conf \) -prune \
        -o -type f -exec md5sum {} + -o -printf '%y %p %l\n' | sort
}
# The processes whose program is ours, or was.
ours() {
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe" || true) in */tidemill*) echo "${process#/proc/}" ;; esac
    done
}
is_at_work() { # UNIT
    [ "$(systemctl is-active "$1")" = active ] || die "$1 is not active"
    # That is what it says with READY=1.
    case $(property "$1" StatusText) in *": at work") ;; *) die "$1 says: $(property "$1" StatusText)" ;; esac
}

systemctl --version | sed -n 1p
files > /trial/before

apt install --no-install-recommends /trial/first.deb
tidemill --version
# There are no manual pages' readers here.
said=$(systemd-analyze verify --man=no /usr/lib/systemd/system/tidemill.service /usr/lib/systemd/system/tidemill@.service 2>&1) ||
    said="it fails: $said"
[ -z "$said" ] || die "systemd-analyze verify: $said"
for unit in tidemill.service tidemill@.service; do
    systemd-analyze security --no-pager --offline=true --threshold="$EXPOSURE" "/usr/lib/systemd/system/$unit" > /trial/security ||
        { cat /trial/security; die "$unit: more exposed than $EXPOSURE (tenths)"; }
    grep -o 'Overall exposure level.*: [0-9.]*' /trial/security
done

# The examples, between interfaces instead of files. Their recorded packets stay where they are: nobody reads them here.
for role in router switch nat filter mitigator gatekeeper grantor kvcache bgp; do
    for file in /usr/share/doc/tidemill/examples/$role/*; do
        case $file in *.md | *.sh | *.zst | */$role.toml) ;; *) cp "$file" /etc/tidemill/ ;; esac
    done
    awk -v role=$role '
        /^\[control\]/ || /^socket = / { next }
        /^name = / { name = $3; gsub(/"/, "", name) }
        /^kind = "pcap"/ { print "kind = \"af_packet\""; print "interface = \"" name "\""; next }
        /^(input|output|pace|preload) = / { next }
        /^path = / { print "path = \"/var/lib/tidemill-" role "/table.txt.zst\""; next }
        /^generate = / { print "generate = { ipv4 = 10000, ipv6 = 1000, next_hops = 16, seed = 1 }"; next }
        { print }
        END { print "[control]"; print "socket = \"/run/tidemill-" role "/tidemill.sock\"" }' \
        /usr/share/doc/tidemill/examples/$role/$role.toml > /etc/tidemill/$role.toml
    unit=tidemill@$role.service
    systemctl start $unit || die "$unit does not start"
    is_at_work $unit
    tidemill show --socket /run/tidemill-$role/tidemill.sock summary > /trial/summary
    grep -q '^in ' /trial/summary || die "$unit: $(cat /trial/summary)"
    systemctl reload $unit || die "$unit is not reloaded"
    case $(property $unit StatusText) in *": reloaded"*) ;; *) die "$unit says after a reload: $(property $unit StatusText)" ;; esac
    systemctl stop $unit
    [ "$(property $unit Result)" = success ] || die "$unit ended with: $(property $unit Result)"
    echo "clean: $unit: ready, reloaded, stopped"
done

# Two that run on: the service itself, a router, and one by name.
sed 's,tidemill-router,tidemill,' /etc/tidemill/router.toml > /etc/tidemill/tidemill.toml
first=tidemill.service
second=tidemill@mitigator.service
systemctl enable -q --now $first $second || die "they are not started"
is_at_work $first
is_at_work $second

# One that stands still is noticed and begins anew.
before=$(property $first MainPID)
kill -STOP "$before"
wait_for 30 '[ "$(property $first NRestarts)" = 1 ] && [ "$(systemctl is-active $first)" = active ]'
is_at_work $first
[ "$(property $first MainPID)" != "$before" ] || die "the same process goes on"
journalctl --no-pager -u $first | grep -q 'Watchdog timeout' || die "it was not the watchdog"
echo "clean: a process that stands still is restarted by the watchdog"

packets() {
    for _ in $(seq 100); do echo packet > /dev/udp/10.99.0.2/9; done
    wait_for 10 'tidemill show summary --json | grep -q "\"in\":100,"'
    case $(tidemill show summary --json) in *'"dropped":{"not-for-us":100}'*) ;; *) die "counted: $(tidemill show summary --json)" ;; esac
}
# One whose configuration a new version does not take: it is changed while it runs.
third=tidemill@kept.service
printf '%s\n' 'version = 1' 'role = "router"' '[control]' 'socket = "/run/tidemill-kept/tidemill.sock"' \
    '[[port]]' 'name = "a"' 'kind = "null"' 'receive = false' '[[port]]' 'name = "b"' 'kind = "generator"' 'rate_pps = 10' > /etc/tidemill/kept.toml
systemctl start $third || die "$third does not start"
is_at_work $third
echo '[nonsense]' >> /etc/tidemill/kept.toml
kept=$(property $third MainPID)

packets
before="$(property $first MainPID) $(property $second MainPID)"
apt install /trial/second.deb
is_at_work $first
is_at_work $second
[ "$(property $third MainPID)" = "$kept" ] || die "$third is not the process before the upgrade: its configuration is no good"
grep -q "$third runs on as version" /trial/apt || die "the upgrade does not say that $third runs on"
sed -i '/nonsense/d' /etc/tidemill/kept.toml
systemctl restart $third || die "$third does not start"
is_at_work $third
for unit in $first $second; do
    case " $before " in *" $(property $unit MainPID) "*) die "$unit is still the process before the upgrade" ;; esac
done
for process in $(ours); do
    case $(readlink "/proc/$process/exe") in *deleted*) die "process $process runs the program before" ;; esac
done
packets
grep -q 'var/lib/tidemill/table' /etc/tidemill/tidemill.toml || die "the upgrade has undone what the operator changed"
echo "clean: upgraded with two units at work: other processes, which count their packets; a third, with a wrong configuration, ran on"

# How severe a line is, as the journal has it.
priority() { # UNIT TEXT PRIORITY
    journalctl --sync
    journalctl --no-pager -u "$1" -o json --output-fields=PRIORITY,MESSAGE,SYSLOG_IDENTIFIER | grep '"SYSLOG_IDENTIFIER":"tidemill"' |
        grep -F "$2" | grep -q "\"PRIORITY\":\"$3\"" || die "the journal of $1 has no line with priority $3: $2"
}
echo 'no setting' > /etc/tidemill/bad.toml
systemctl start tidemill@bad.service 2> /dev/null && die "a bad configuration is started"
systemctl reset-failed tidemill@bad.service
priority tidemill@bad.service 'bad.toml:1: ' 3
priority $first 'the kernel has addresses there' 4
priority $first ': good: a router of 2 ports' 6
echo "clean: the journal has errors, warnings and the rest by their priorities"

apt remove tidemill
[ -z "$(ours)" ] || die "still at work after the removal: $(ours)"
[ -z "$(systemctl list-units --no-legend --state=active 'tidemill*')" ] || die "active after the removal: $(systemctl list-units 'tidemill*')"
[ -e /etc/tidemill/tidemill.toml ] || die "the removal has taken the configuration"
apt purge tidemill
files > /trial/after
diff /trial/before /trial/after || die "left behind, or changed, see above"
for what in passwd group; do
    if getent $what tidemill; then die "left in $what"; fi
done
ls -d /run/tidemill* 2> /dev/null && die "left in /run"
echo "clean: installed, each example role started, upgraded, removed, purged: nothing is left"
