# fp8lab's image, for amd64 and arm64: a small system, the program, and the CUDA libraries it opens.
#
# `make image` builds it (containers/image.sh): it finds docker, podman or buildah and passes the
# arguments below. Only BASE_IMAGE has no default. The base is any Debian or Ubuntu. If it has a
# CUDA toolkit, the image has the CUDA backend; otherwise the image is for CPUs. After the packages
# of the base no step needs a network.
ARG BASE_IMAGE

# ---- the base of the image's architecture, with cuDNN and NCCL ---------------------------------
FROM ${BASE_IMAGE} AS base
USER root
SHELL ["/bin/bash", "-c"]
ARG CUDA=auto
COPY containers/cuda_parts.sh containers/find_nvcc.sh containers/versions /src/containers/
RUN CUDA=${CUDA} /src/containers/cuda_parts.sh /cuda

# ---- the CUDA backend, compiled on the machine that builds -------------------------------------
FROM --platform=${BUILDPLATFORM} ${BASE_IMAGE} AS plugin
USER root
SHELL ["/bin/bash", "-c"]
WORKDIR /src
COPY Makefile /src/
COPY containers/ /src/containers/
COPY kernels/ /src/kernels/
COPY --from=base /cuda/build/ /cuda/
ARG ARCHS=all
ARG TARGETARCH
RUN ARCHS=${ARCHS} containers/plugin.sh /cuda "${TARGETARCH}" /plugin

# ---- the packages that the program is compiled with --------------------------------------------
FROM base AS packages
WORKDIR /src
COPY containers/install.sh /src/containers/
RUN containers/install.sh build data && rm -rf /var/lib/apt/lists/* /var/cache/apt/*

# ---- the program, and the root of the image ----------------------------------------------------
FROM packages AS build
COPY . /src/
COPY --from=plugin /plugin/ /plugin/
ARG COMMIT=unknown
ARG DIRTY=0
ARG SOURCE_DATE_EPOCH=0
ARG BASE_IMAGE
ARG BASE_DIGEST
ARG TARGETARCH
# More words for make. OPT_release=-O0 builds in a third of the time; results have the same bits.
ARG MAKE_FLAGS=
# Without debug information, which the image would not have, and without the objects.
RUN make -j"$(nproc)" dist NVCC= WARN=-g0 COMMIT="${COMMIT}" DIRTY="${DIRTY}" ${MAKE_FLAGS} && \
    BASE_IMAGE="${BASE_IMAGE}" BASE_DIGEST="${BASE_DIGEST}" COMMIT="${COMMIT}" DIRTY="${DIRTY}" \
    TARGETARCH="${TARGETARCH}" SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH}" \
        containers/rootfs.sh dist/fp8lab /plugin /cuda /rootfs && rm -rf build dist

# ---- the image ---------------------------------------------------------------------------------
FROM scratch
COPY --from=build /rootfs/ /
# The driver that the CUDA libraries need, in the NVIDIA runtime's syntax; empty for CPUs.
ARG REQUIRE_CUDA="cuda>=13.0"
ARG BASE_IMAGE
ARG BASE_DIGEST
ARG COMMIT=unknown
ARG VERSION=unknown
ARG CREATED=1970-01-01T00:00:00Z
# Seconds between SIGTERM and SIGKILL, docker's default. Set it together with --stop-timeout.
ENV PATH=/opt/fp8lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA=${REQUIRE_CUDA} \
    FP8LAB_STOP_GRACE=10
LABEL org.opencontainers.image.title="fp8lab" \
      org.opencontainers.image.description="Trains transformers in FP8; each run is a verifiable bundle" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
USER 10001:10001
WORKDIR /work
VOLUME ["/runs", "/data"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/fp8lab/bin/fp8lab"]
