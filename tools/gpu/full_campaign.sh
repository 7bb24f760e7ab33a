#!/usr/bin/env bash
# All tables of the small model on two GPUs of one host, in about 26 minutes.
#
#   tools/gpu/full_campaign.sh launch DIR SECONDS [COMMIT]   copies this checkout into DIR/tree and starts both GPUs' lists there
#   tools/gpu/full_campaign.sh poll DIR SECONDS OUT          waits, at most so long; OUT/all.tgz gets what there is by then
#
# ROWS0 and ROWS1 are the lists, in order (an empty one is none): RECIPE[:SAMPLES[:STARTS[:POINTS]]] (5, 1 and all), "missing"
# (v4mini-missing-c64), "outputs" (the answers of v4mini-answers-patched and of v4mini-broken held to stock's;
# outputs:RECIPE[=OUTCOME] is one alone), "abeval" (ab_eval.sh; abeval:RECIPE is another than v4mini-patched), "gluon"
# (gluon_mla_check.py), "parts" (kernel_parts.py), "sweeps" (topk_sweep.py, hc_sweep.py, mla_sweep.py), "cpumap" (cpu_map.py)
# and "kernelbench" (with any ending, so that it may stand in a list twice).
# ROWS2 (default: none) are rows for both GPUs together, such as v4mini-patched-tp2; they begin when both lists are done. On a
# host with one GPU, that one gets ROWS0 and then ROWS1.
# All run in sessions of their own, so that they outlive the shell that launched them; nothing is begun after SECONDS, and what
# runs then is interrupted. Where a machine is taken away when nobody calls, poll must follow poll.
# SGLang is looked for in $SITE (default /tmp/site), the kernels' peers too. OUT/jit-GPU.txz are the compile caches, for the next
# launch's homes ($HOMES-GPU, by default /tmp/gate-home-GPU), which JIT_CACHES=FILE.txz fills: without, some minutes go.
set -u
export HOMES=${HOMES:-/tmp/gate-home}
python=${PYTHON:-python3} site=${SITE:-/tmp/site}
. "$(dirname "$0")/jit_caches.sh"
[ $# -ge 3 ] || { sed -n 2,17p "$0"; exit 2; }
verb=$1
mkdir -p "$2" && dir=$(cd "$2" && pwd)
out=$dir/out tree=$dir/tree
export PYTHONPATH=$site/nvidia_cutlass_dsl/python_packages:$site
left() { echo $(($(cat "$dir/end") - $(date +%s))); }
# The first compiles what is left to compile: a row that matters less. A sample of fallback-1m at C=64 takes 140 s.
export ROWS0=${ROWS0-v4mini-step3-1m:3 v4mini-patched:5:3 v4mini-patched-1m v4mini-step2-1m:3 v4mini-step1-1m:3 v4mini-patched-long:3}
# What shows that the gate can fail comes before what is only measured: time may run out.
export ROWS1=${ROWS1-outputs missing v4mini-stock v4mini-stock-1m v4mini-fallback-1m:3 v4mini-fallback kernelbench}
export ROWS2=${ROWS2-}
all_done() { [ -e "$dir/done0" ] && [ -e "$dir/done1" ] && [ -e "$dir/done2" ]; }
row() { # GPU ROW
  case $2 in
  missing) GATE_ARGS="--samples 2 --concurrency 1,64" tools/gpu/campaign.sh "$out" "$(left)" "$1" v4mini-missing-c64 ;;
  outputs*)
    IFS=: read -r _ held <<<"$2"
    # shellcheck disable=SC2086
    tools/gpu/outputs.sh "$out" "$(left)" "$1" v4mini-answers-stock ${held:-v4mini-answers-patched v4mini-broken=INVALID} ;;
  abeval*)
    IFS=: read -r _ recipe <<<"$2"
    tools/gpu/in_home.sh "$HOMES-$1" "$1" tools/gpu/ab_eval.sh "$out/abeval" "$(left)" 10 ${recipe:+"$recipe"} >"$out/abeval.txt" 2>&1 ;;
  gluon) CUDA_VISIBLE_DEVICES=$1 timeout 150 "$python" tools/gpu/gluon_mla_check.py >"$out/gluon.txt" 2>&1 ;;
  cpumap) tools/gpu/in_home.sh "$HOMES-$1" "$1" timeout 240 "$python" tools/gpu/cpu_map.py "$out/cpumap" >"$out/cpumap.txt" 2>&1 ;;
  parts) CUDA_VISIBLE_DEVICES=$1 timeout 120 "$python" tools/gpu/kernel_parts.py >"$out/parts.txt" 2>&1 ;;
  sweeps)
    for sweep in topk hc mla; do
      CUDA_VISIBLE_DEVICES=$1 timeout 110 "$python" "tools/gpu/${sweep}_sweep.py" --seconds 60 >"$out/${sweep}_sweep.txt" 2>&1
    done ;;
  kernelbench*) PEERS=$site CUDA_VISIBLE_DEVICES=$1 tools/gpu/kernelbench.sh "$out/$2" "$(left)" >"$out/$2.txt" 2>&1 ;;
  *)
    IFS=: read -r recipe samples starts points <<<"$2"
    GATE_ARGS="--samples ${samples:-5} ${starts:+--starts $starts} ${points:+--concurrency $points} --record" tools/gpu/campaign.sh "$out" "$(left)" "$1" "$recipe" ;;
  esac
}
case $verb in
launch)
  root=$(cd "$(dirname "$0")/../.." && pwd)
  mkdir -p "$out" "$tree" && tar -C "$root" --exclude=./.git --exclude='./.[a-z]*' -cf - . | tar -C "$tree" -xf - || exit 2
  echo $(($(date +%s) + $3)) >"$dir/end"
  PERFGATE_COMMIT=${4:-} setsid nohup bash "$tree/tools/gpu/full_campaign.sh" lists "$dir" 0 >"$out/lists.txt" 2>&1 </dev/null & ;;
lists)
  cd "$tree" || exit 2
  [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" != 1 ] || { ROWS0="$ROWS0 $ROWS1" && ROWS1=; }
  # What both GPUs' servers compile is compiled once, by all cores; with the caches of an earlier launch it takes a moment.
  case $ROWS0$ROWS1 in
  *v4mini* | *outputs* | *missing* | *abeval*)
    tools/gpu/in_home.sh "$HOMES-0" 0 timeout 240 "$python" tools/gpu/prewarm.py >"$out/prewarm.txt" 2>&1
    # Not for a list without rows: what lies there is packed at every poll.
    [ -z "$ROWS1" ] || { mkdir -p "$HOMES-1" && pack_jit "$HOMES-0" -cf - | tar -C "$HOMES-1" -xf -; } ;;
  esac
  for gpu in 0 1 2; do
    setsid nohup bash tools/gpu/full_campaign.sh "list$gpu" "$dir" 0 >"$out/list$gpu.txt" 2>&1 </dev/null &
  done ;;
list?)
  cd "$tree" || exit 2
  list=${verb#list}
  rows=ROWS$list gpu=$list
  if [ "$list" = 2 ]; then
    gpu=0,1
    until [ -z "$ROWS2" ] || { [ -e "$dir/done0" ] && [ -e "$dir/done1" ]; }; do sleep "${EVERY:-15}"; done
    ln -sfn "$HOMES-0" "$HOMES-0-1" # what one GPU compiled serves both
  fi
  for each in ${!rows}; do
    if [ "$(left)" -lt 60 ]; then echo "$each: not begun" | tee -a "$out/gpu${gpu/,/-}.txt"; else row "$gpu" "$each"; fi
  done
  touch "$dir/done$list" ;;
poll)
  end=$((SECONDS + $3)) back=${4:?poll DIR SECONDS OUT}
  mkdir -p "$back"
  pack() { tar czf "$back/all.tmp" -C "$out" . 2>/dev/null; mv "$back/all.tmp" "$back/all.tgz"; }
  while [ $SECONDS -lt $end ] && ! all_done; do
    sleep "${EVERY:-15}"
    pack
  done
  for gpu in 0 1; do
    pack_jit "$HOMES-$gpu" -I 'xz -T0 -1' -cf "$back/jit-$gpu.txz"
  done
  pack
  cat "$out"/gpu?.txt "$out"/gpu0-1.txt "$out"/outputs.txt "$out"/gluon.txt "$out"/cpumap/map.txt 2>/dev/null
  tail -n 4 "$out"/abeval.txt 2>/dev/null
  tail -n 1 "$out"/prewarm.txt "$out"/lists.txt
  tail -n 3 "$out"/list?.txt
  echo "$(left) s left; lists done: $(find "$dir" -maxdepth 1 -name 'done?' | wc -l) of 3" ;;
*) sed -n 2,17p "$0"; exit 2 ;;
esac
