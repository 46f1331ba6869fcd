#!/bin/bash
# One night of the suites on SLURM: bash slurm/night.sh, in the root of the bench, on a folder that all nodes have.
#
# It divides the night by the times in the history and submits an array of @JOBS@ jobs. The same array follows three times
# (afternotok): it starts only where none before did finish, skips the jobs that have, and goes on where the
# others ended. The last job puts the run files together and says what is missing.
set -euo pipefail

jobs=@JOBS@
attempts=4  # a model that kills its process is given up after three
night="reports/nights/$(date -u +%Y%m%dT%H%M%SZ)"
mkdir -p "$night"
qbench plan suites/*.qbench.toml --jobs "$jobs" -o "$night/plan.json"

arrays=()
after=()
for ((attempt = 1; attempt <= attempts; attempt++)); do
  # Numbered from 1, as the jobs of the plan are.
  array=$(sbatch --parsable "${after[@]}" --array="1-$jobs" --output="$night/%A_%a.log" slurm/job.sh "$night")
  array=${array%%;*}
  arrays+=("$array")
  # of all before it: one that was not needed is cancelled, which SLURM takes for not finished
  everyone=$(IFS=:; echo "${arrays[*]}")
  after=(--dependency="afternotok:$everyone" --kill-on-invalid-dep=yes)
done
sbatch --parsable --dependency="afterany:$everyone" --output="$night/merge.log" slurm/merge.sh "$night"
