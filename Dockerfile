# Images of the service, its workers and the command line: target cpu or cuda.
#
#   ./dev image            # or: docker build --target cpu --tag hilbert-ring:cpu .
#
# BASE is any Debian 12. CUDA_BASE is a Debian 12 with nvcc (12 or 13), NCCL and their headers. Its CUDA runtime is
# linked statically and its NCCL is copied, both with their licences. The driver comes from the host.
ARG BASE=debian:bookworm-slim
ARG CUDA_BASE=hilbert-ring-cuda-base

FROM ${BASE} AS build-cpu
WORKDIR /source
COPY dev .
RUN ./dev setup
COPY . .
ENV LANG=C.UTF-8 CCACHE_DIR=/ccache CCACHE_BASEDIR=/source CCACHE_NOHASHDIR=1
RUN --mount=type=cache,target=/ccache \
    ./dev packages && mkdir /packages && cp build/package/*.deb /packages

FROM ${BASE} AS cpu
# ./dev image sets both, the version from CMakeLists.txt.
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Hilbert Ring" \
      org.opencontainers.image.description="Attention over sequences that are too long for one device" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-3-Clause AND MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# tini is the first process: it forwards signals, and waits for processes that a killed health check leaves behind. The
# health check of a service with TLS needs openssl. An image must not contain the join token that the package generates.
RUN --mount=type=bind,from=build-cpu,source=/packages,target=/packages \
    apt-get update \
    && apt-get install -y --no-install-recommends tini openssl /packages/hilbert-ring-server_*.deb \
      /packages/hilbert-ring-client_*.deb \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /etc/hilbert-ring
COPY deploy/image/hilbert-ring-health /usr/bin/
# Ports of callers, HTTP, membership, and calls to a worker.
EXPOSE 8001 8002 8003 8101
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["hilbert-ring-health"]
ENTRYPOINT ["tini", "--"]
CMD ["hilbert-ring-coordinator"]

# Only the worker uses GPUs.
FROM ${CUDA_BASE} AS build-cuda
WORKDIR /source
COPY dev .
RUN ./dev setup
COPY . .
ENV LANG=C.UTF-8 CCACHE_DIR=/ccache CCACHE_BASEDIR=/source CCACHE_NOHASHDIR=1
ARG CUDA_ARCHITECTURES="80;90"
RUN --mount=type=cache,target=/ccache \
    cmake --preset package -DHILBERT_RING_CUDA=ON "-DHILBERT_RING_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES" \
    && cmake --build --preset package --target hilbert-ring-worker \
    && mkdir /worker && strip -o /worker/hilbert-ring-worker build/package/bin/hilbert-ring-worker
# The loader searches this folder on every architecture.
RUN mkdir -p /nvidia/lib && cp --dereference \
      "$(sed -n 's/^NCCL_LIBRARY:FILEPATH=//p' build/package/CMakeCache.txt)" /nvidia/lib/libnccl.so.2
# Patterns of the licences' paths in NVIDIA's Debian, PyPI and installer packages. The first match is copied.
ARG NCCL_LICENCE="/usr/share/doc/libnccl2/copyright /usr/local/cuda/dist-info/nvidia_nccl*/licenses/License.txt"
ARG CUDA_LICENCE="/usr/local/cuda/EULA.txt /usr/share/doc/cuda-cudart-*/copyright /usr/local/cuda/dist-info/nvidia_cuda_runtime*/licenses/License.txt"
RUN deploy/image/copy_licence libnccl2 "$NCCL_LICENCE" && deploy/image/copy_licence cuda-runtime "$CUDA_LICENCE"

FROM cpu AS cuda
COPY --from=build-cuda /worker/ /usr/bin/
COPY --from=build-cuda /nvidia/ /usr/
LABEL org.opencontainers.image.licenses="Apache-2.0 AND BSD-3-Clause AND MIT AND LicenseRef-NVIDIA-CUDA-EULA"
# Settings of the NVIDIA container toolkit.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
