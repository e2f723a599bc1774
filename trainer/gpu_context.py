"""The CUDA context of a trainer, made while PyTorch is imported."""

import ctypes
import json
import os
from pathlib import Path


def begin_context(run_json: str) -> None:
    """Makes the context that PyTorch will use on the GPU of this trainer, if it uses one.

    What fails here fails again, and is reported, when PyTorch asks for the context.
    """
    run = json.loads(Path(run_json).read_text())
    if run["sampler"]["device"] != "cuda" or run["trainer"]["task"] == "digest":
        return
    gpu = run["sampler"]["gpus"][int(os.environ.get("LOCAL_RANK", "0"))]
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), gpu) == 0:
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
