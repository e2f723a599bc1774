#!/bin/bash
# A task of srun for each rank: sbatch examples/srun.sh DATA
#SBATCH --job-name=cohort
#SBATCH --nodes=1 --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=16 --mem=200G
# Each task must see the GPUs of all tasks of its machine: --gpus-per-node, not --gpus-per-task.
set -euo pipefail
# Ports below 32768, which Linux gives to nobody else.
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS python examples/ranks.py "$0"' "$1"
