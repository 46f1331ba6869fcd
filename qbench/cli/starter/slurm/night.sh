#!/bin/bash
# One night of the suites on SLURM: bash slurm/night.sh, in the root of the bench, on a folder that all nodes have.
#
# It divides the night by the times in the history and submits an array of @JOBS@ jobs. The same array follows twice
# (afternotok): it starts only where the one before did not finish, skips the jobs that have, and goes on where the
# others ended. The last job puts the run files together and says what is missing.
set -euo pipefail

jobs=@JOBS@
attempts=3
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
  after=(--dependency="afternotok:$array" --kill-on-invalid-dep=yes)
done
everyone=$(IFS=:; echo "${arrays[*]}")
sbatch --parsable --dependency="afterany:$everyone" --output="$night/merge.log" slurm/merge.sh "$night"
