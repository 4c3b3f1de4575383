#!/bin/sh
# Tunes kernels on several nodes: a job array whose tasks share the variants, each with a store on its own disk.
#
#   sbatch --array=1-8 scripts/tune_slurm.sh --kind fwd --dtype bf16 --target sm90
#
# Afterwards, in the folder of the stores:
#   kgen db merge --db all.db tune-*.db
#   kgen tune --kind fwd --dtype bf16 --target sm90 --replay all.db --write tuned.toml
#
#SBATCH --job-name=kgen-tune
#SBATCH --gpus=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
set -eu
out=${KGEN_TUNE_OUT:-$PWD}
local=$(mktemp -d)
trap 'rm -rf "$local"' EXIT
db=$local/rows.db kept=$out/tune-$SLURM_ARRAY_TASK_ID.db
[ ! -e "$kept" ] || kgen db merge --db "$db" "$kept" # an earlier task that ended too soon
code=0
kgen tune "$@" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --db "$db" --build-dir "$local/build" || code=$?
kgen db merge --db "$kept" "$db"
exit $code
