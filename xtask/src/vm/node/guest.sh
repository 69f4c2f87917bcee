#!/bin/sh
# The one unit of the guest's boot, from the disk that the host made; what it learns goes to out/ there.
cd /podlapse || exit 1
exec > out/log 2>&1
trap 'sync; systemctl poweroff -ff' EXIT
export PATH="/podlapse/bin:$PATH"

step() {
    echo "== $(cut -d ' ' -f 1 /proc/uptime) $*"
    "$@" || { echo "== failed with $?: $*"; journalctl --no-pager -u containerd -n 50; exit 1; }
}

# A start under podlapse: its trace in out/NAME.json, what the node itself says in out/NAME.truth.
start() {
    name=$1 containers=$2 backend=$3
    shift 3
    podlapse record "out/$name.plr" --backend "$backend" --containers "$containers" --timeout 120s -o json -- \
        sh -c "exec podlapse-guest pod $name $* > out/$name.truth" > "out/$name.json"
}

# A start by a client that is older than podlapse, over its one connection.
late() {
    podlapse-guest pod late --older out/older > out/late.truth &
    client=$!
    while [ ! -e out/older ]; do
        [ -d "/proc/$client" ] || return 1
        sleep 0.1
    done
    podlapse record out/late.plr --timeout 120s -o json -- \
        sh -c "rm out/older; while [ -d /proc/$client ]; do sleep 0.1; done" > out/late.json
}

# What runs now, while the pod three is kept.
pods() {
    podlapse pods -o json > out/pods.json
}

mkdir -p /etc/cni/net.d
cp containerd.toml /etc/containerd/config.toml
cp cni.conflist /etc/cni/net.d/10-podlapse.conflist
step systemctl start dbus.socket containerd.service
step ctr -n k8s.io images import images/pause.tar
step ctr -n k8s.io images import images/busybox.tar
step start demo 1 auto
step start three 3 trampoline --init --apps 2 --keep
step pods
step start crun 1 tracepoint --runtime crun
step late
{
    echo "kernel $(uname -r)"
    systemctl --version | sed -n '1s/ (.*//p'
    containerd --version | awk '{ print $1, $3 }'
    runc --version | head -n 1
    crun --version | head -n 1
} > out/versions
step true
