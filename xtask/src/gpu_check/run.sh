#!/bin/sh
# Checks and measures the GPUs of this machine with the programs beside this file; needs the driver and NVRTC, nothing else.
#
#   ./run.sh                    everything that is not done yet; call it again after an interruption
#   ./run.sh check-cuda model   only these steps: check-cuda check-opencl bench transfers methods model plot shard
#   PARTS=16 ./run.sh           conformance in 16 parts instead of 8
#   DATE=2026-01-31 ./run.sh    a date for the record
#
# Results: records.jsonl (lines for bench/records/gpu.jsonl), gpu.png, and a log for each step in logs/. A step that is done leaves
# a file in done/. The exit code is that of the first step that failed; the others run all the same.
set -u
cd "$(dirname "$0")" || exit 2
parts=${PARTS:-8}
date=${DATE:-}
mkdir -p logs done
failed=0

# The GPU's own OpenCL platform, not a CPU's.
opencl=$(./gabion info | awk '/^opencl/ && /, gpu, / { sub(":", "", $2); print $2; exit }')

once() {
    what=$1
    shift
    if [ -e "done/$what" ]; then
        echo "done    $what"
        return
    fi
    if "$@" >"logs/$what.out" 2>"logs/$what.err"; then
        : >"done/$what"
        echo "ok      $what"
        tail -n 3 "logs/$what.out"
    else
        ended=$?
        echo "FAILED  $what ($ended)"
        grep FAIL "logs/$what.err" || tail -n 5 "logs/$what.err"
        if [ "$failed" -eq 0 ]; then failed=$ended; fi
    fi
}

bench() {
    ./gabion-bench gpu --kernel-cache kernels --record records.jsonl ${date:+--date "$date"} "$@"
}

on_opencl() {
    if [ -z "$opencl" ]; then
        echo "SKIP    $1: no OpenCL platform has a GPU here"
        return
    fi
    asked=$1
    shift
    once "$asked" bench --api opencl --device "$opencl" "$@"
}

step() {
    case $1 in
    check-cuda)
        once check-cuda-generic bench --check --kernels generic
        if ./gabion info | grep -q '^cuda.*compute 9\.0'; then
            once check-cuda-products bench --check --kernels products
        else
            echo "SKIP    check-cuda-products: no GPU of compute capability 9.0 here"
        fi
        part=1
        while [ "$part" -le "$parts" ]; do
            once "check-cuda-specialised-$part-of-$parts" bench --check --kernels specialised --part "$part/$parts"
            part=$((part + 1))
        done
        ;;
    check-opencl)
        on_opencl check-opencl-generic --check --kernels generic
        on_opencl check-opencl-methods --check --kernels methods
        part=1
        while [ "$part" -le "$parts" ]; do
            on_opencl "check-opencl-specialised-$part-of-$parts" --check --kernels specialised --part "$part/$parts"
            part=$((part + 1))
        done
        ;;
    bench) once bench bench ;;
    transfers)
        once check-cuda-mapped bench --check --kernels generic --transfer mapped
        on_opencl check-opencl-svm --check --kernels generic --transfer svm
        for code in 10+4 30+33; do
            once "copies-$code" bench --code "$code"
            once "mapped-$code" bench --code "$code" --transfer mapped
            on_opencl "opencl-copies-$code" --code "$code"
            on_opencl "opencl-svm-$code" --code "$code" --transfer svm
        done
        ;;
    methods)
        for method in peasant log full unrolled; do
            for vector in 1 4 16; do
                on_opencl "method-$method-$vector" --code 10+4 --code 30+33 --method "$method" --vector "$vector"
            done
        done
        ;;
    model)
        once model bench --model --full
        once model-specialised bench --model --kernels specialised
        ;;
    plot) once plot bench --plot gpu.png ;;
    shard)
        if [ ! -e big ]; then head -c 2147483648 /dev/urandom >big; fi
        for device in cpu cuda auto; do
            rm -rf shards
            once "shard-$device" ./gabion shard split big --code 64+16 --block 1MiB --out shards --json \
                --device "$device" --device-cache cache
        done
        rm -rf shards big
        ;;
    *)
        echo "no step $1" >&2
        failed=2
        ;;
    esac
}

if [ "$#" -eq 0 ]; then
    set -- check-cuda check-opencl bench transfers methods model plot shard
fi
for name in "$@"; do
    step "$name"
done
exit "$failed"
