#!/usr/bin/env bash
# CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in the environment of the MPS daemon alone limits no client; in that of a client it
# does, and then only the free memory shows it: the total stays that of the GPU.
#
# Needs: a GPU, nvidia-cuda-mps-control, python3; no package. Seen: driver 580.159 (CUDA 13.0), H200.
# Guess before the run: a limit in the daemon's environment holds for all its clients, and total memory shows it.
set -euo pipefail
command -v nvidia-smi >/dev/null && command -v nvidia-cuda-mps-control >/dev/null ||
  { echo "needs a GPU and nvidia-cuda-mps-control: not run"; exit 77; }
work=$(mktemp -d /tmp/finding.XXXXXX)
export CUDA_MPS_PIPE_DIRECTORY=$work CUDA_MPS_LOG_DIRECTORY=$work
trap 'echo "quit -t 2" | nvidia-cuda-mps-control >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
cat >"$work/free.py" <<'PYTHON'
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(f"{free.value >> 30} {total.value >> 30}")
PYTHON
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=8G" nvidia-cuda-mps-control -d
read -r free total < <(python3 "$work/free.py")
read -r limited limited_total < <(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=8G" python3 "$work/free.py")
echo "limit of 8 GB in the daemon's environment: $free of $total GiB free"
echo "limit of 8 GB in the client's environment: $limited of $limited_total GiB free"
((free > 8 && limited <= 8 && limited_total == total)) || { echo "the behaviour has changed"; exit 1; }
