#!/usr/bin/env bash
# How good is A/B on this GPU? tools/gpu/ab_eval.sh OUT [SECONDS [BLOCKS [RECIPE]]]
#
# Starts three servers of RECIPE (default v4mini-patched) that stay up: two alike and one whose decode step is 3 % longer, by a
# kernel that spins behind the step's own (tests/evaluation/real/slowdown.py). A block is one A/A and one A/B run on the same
# rounds at C=64: 6 pairs, up to 16 until the answer is clear, samples of a second and more. (At C=16 four patched layers take
# 2.6 ms, which a busy host takes as well: then the change is hidden. Four of v4mini-fallback take 7.) OUT gets runs.jsonl,
# samples.jsonl and logs; another call with the same OUT goes on counting until it holds the 10 blocks that are asked for. No
# block is begun after SECONDS (340). SPREAD, POINTS, PAIRS, MAX_PAIRS, SAMPLE_SECONDS, PROMPTS and LAYERS change what the run is;
# without SPREAD (or the recipe's own) one start on each side leaves 3 % INCONCLUSIVE.
# Exit status 0: every A/A run was quiet and every slow-down found. Needs SGLang and its compiled kernels (recipe's jit_caches)
# where the recipe looks for them, below HOME: a cold start compiles for minutes (campaign.sh leaves them in its homes).
set -u
out=${1:?usage: tools/gpu/ab_eval.sh OUT [SECONDS [BLOCKS [RECIPE]]]}
seconds=${2:-340}
blocks=${3:-10}
recipe=${4:-v4mini-patched}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd) && cd "$root" || exit 2
"${PYTHON:-python3}" tools/gpu/make_entry_point.py "$out/site" >/dev/null || exit 2
export PYTHONPATH=$out/site:$root:$root/kernels${PYTHONPATH:+:$PYTHONPATH}
done=$(grep -c '"kind": "A/A"' "$out/runs.jsonl" 2>/dev/null || true)
left=$((blocks - ${done:-0}))
[ "$left" -gt 0 ] || left=0
# Three servers on one card: 4 layers of the model's 6. A server of 6 takes some 45 GiB and, while it loads, 12 more: the third
# does not get them on a card of 140.
# shellcheck disable=SC2086
exec "${PYTHON:-python3}" tests/evaluation/real/command.py --out "$out" --recipe "recipes/$recipe.toml" \
    --slow "step:share=0.03" --points "${POINTS:-64}" --pairs "${PAIRS:-6}" --max-pairs "${MAX_PAIRS:-16}" \
    --seconds "${SAMPLE_SECONDS:-1}" \
    --blocks "$left" --blocks-a-start "$blocks" --budget "$seconds" --together \
    --model layers="${LAYERS:-4}" ${SPREAD:+--spread $SPREAD} ${PROMPTS:+--prompts $PROMPTS} ${SET:+--set $SET}
