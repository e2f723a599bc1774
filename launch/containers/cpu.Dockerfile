# An image for machines without a GPU, from the same wheel: PyTorch without CUDA, which is 5 GB smaller.
#
#   bash launch/wheel.sh python3.12
#   docker build -f launch/containers/cpu.Dockerfile -t cohort-image dist
FROM debian:trixie-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY cohort_gnn-*-cp312-abi3-manylinux_2_28_x86_64.whl /wheels/
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir --index-url $TORCH_INDEX torch
RUN /opt/venv/bin/pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
ENV PATH=/opt/venv/bin:$PATH
