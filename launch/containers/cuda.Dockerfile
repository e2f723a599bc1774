# An image for machines with NVIDIA GPUs, from a wheel:
#
#   bash launch/wheel.sh python3.12
#   docker build -f launch/containers/cuda.Dockerfile -t cohort-image dist
#
# PyTorch's packages bring CUDA's libraries, and `docker run --gpus all` those of the driver.
FROM debian:trixie-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY cohort_gnn-*-cp312-abi3-manylinux_2_28_x86_64.whl /wheels/
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
ENV PATH=/opt/venv/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
