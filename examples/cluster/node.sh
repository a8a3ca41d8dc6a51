#!/bin/sh
# A Ray cluster of your own machines, or of this one alone. Each machine has the same Python with
# `pip install -e '.[ray]'`; docs/cluster.md says how many it takes.
#
#   sh node.sh token                   once, on one machine; copy ~/.ray/auth_token to the others, readable by you alone
#   sh node.sh head [ADDRESS]          the first machine; without an address it is alone, on its loopback
#   sh node.sh worker HEAD ADDRESS     every further one that holds demons: the first one's address, and its own
#   sh node.sh robot HEAD ADDRESS      the machine on which the body lives: it joins, and holds no demons
#   sh node.sh stop                    on each of them, in the end: it ends all Ray of yours there
#
# Flags of `ray start` may follow, as --num-cpus=8 or --block. Then, on the robot's machine or on the head:
#   horde learn --shards auto --ray HEAD:6379
#
# Whoever reaches Ray's ports and has the token can run programs as you, and the token is sent unencrypted. With an
# address Ray listens on all networks of the machine, not on that one alone: close them by a firewall but for a network
# of your own, a cable or a VPN (`ufw default deny incoming; ufw allow in on wg0`).
set -eu

export RAY_AUTH_MODE=token           # every node refuses whoever has not got ~/.ray/auth_token
export RAY_USAGE_STATS_ENABLED=0     # nothing is sent to anybody
PORT=${PORT:-6379}

start() {
    exec ray start --disable-usage-stats "$@"
}

join() {
    head=${1:?the address of the head} own=${2:?the address of this machine}
    shift 2
    start --address="$head:$PORT" --node-ip-address="$own" "$@"
}

what=${1:-}
[ $# -eq 0 ] || shift
case "$what" in
token) ray get-auth-token --generate >/dev/null && chmod 600 "$HOME/.ray/auth_token" ;;
head)
    own=${1:-127.0.0.1}
    [ $# -eq 0 ] || shift
    # Else Ray takes the loopback for a mistake, and another address of the machine in its place.
    [ "$own" != 127.0.0.1 ] || export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
    # No dashboard: it has a port of its own, and `horde watch` shows each shard. It is the head's alone to say so.
    start --head --port="$PORT" --node-ip-address="$own" --include-dashboard=false "$@"
    ;;
worker) join "$@" ;;
robot) join "$@" --num-cpus=0 ;;
stop) ray stop ;;
*)
    echo "node.sh: say token, head, worker HEAD ADDRESS, robot HEAD ADDRESS or stop; its first lines tell more" >&2
    exit 2
    ;;
esac
