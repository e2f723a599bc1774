#!/usr/bin/env bash
# Under an MPS daemon with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, a client sees its part of the SMs (32 of 132 with 25 %), and
# cuDevSmResourceSplitByCount refuses to split them for any count (error 915). With the flag
# CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING it succeeds, and reports a remainder larger than the client's part.
#
# Needs: a GPU of compute capability 9.0, nvidia-cuda-mps-control, python3; no package. Seen: driver 580.159 (CUDA
# 13.0), H200. Guess before the run: 32 SMs split into 16 and 16, as 132 split into 16 and 116 without a percentage.
set -euo pipefail
command -v nvidia-smi >/dev/null && command -v nvidia-cuda-mps-control >/dev/null ||
  { echo "needs a GPU and nvidia-cuda-mps-control: not run"; exit 77; }
work=$(mktemp -d /tmp/finding.XXXXXX)
export CUDA_MPS_PIPE_DIRECTORY=$work CUDA_MPS_LOG_DIRECTORY=$work
trap 'echo "quit -t 2" | nvidia-cuda-mps-control >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
cat >"$work/split.py" <<'PYTHON'
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
SM, COUNT_AT, RESOURCE_BYTES = 1, 96, 256  # CUdevResource, and where its sm.smCount lies
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
every, first, rest = (ctypes.create_string_buffer(RESOURCE_BYTES) for _ in range(3))
assert cuda.cuDeviceGetDevResource(device, every, SM) == 0


def count(resource):
    return int.from_bytes(resource.raw[COUNT_AT : COUNT_AT + 4], "little")


for flags in (0, 1):
    groups = ctypes.c_uint(1)
    error = cuda.cuDevSmResourceSplitByCount(first, ctypes.byref(groups), every, rest, flags, 16)
    print(error, count(every), count(first) if not error else 0, count(rest) if not error else 0)
PYTHON
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 nvidia-cuda-mps-control -d
{ read -r error sms first rest; read -r error1 sms1 first1 rest1; } < <(python3 "$work/split.py")
echo "flags 0: error $error, of $sms SMs: first $first, rest $rest"
echo "flags 1: error $error1, of $sms1 SMs: first $first1, rest $rest1"
((error == 915 && error1 == 0 && first1 + rest1 > sms1)) || { echo "the behaviour has changed"; exit 1; }
