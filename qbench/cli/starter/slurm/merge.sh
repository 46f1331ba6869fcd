#!/bin/bash
#SBATCH --job-name=qbench-merge
#SBATCH --time=00:30:00
# The run files of the night in the folder $1, put together: 4 where a cell has no result, which is named; 1 where a
# cell is red; 0 where all are green.
set -uo pipefail

night=$1
qbench merge "$night/runs" -o reports/history --expect "$night/plan.json"
code=$?
qbench report -o reports --report html
if ((code == 0)) && grep -qx 1 "$night"/exit-*; then
  code=1
fi
echo "$code" > "$night/exit"
exit "$code"
