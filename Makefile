# gpuward: a thin front of meson.  `make help` lists what there is.
SHELL := /bin/bash
BUILD ?= build
SCENARIO ?= demo
PREFIX ?= /usr/local

.PHONY: deps build run test test-deep coverage analyze test-gpu test-live test-clients test-systemd test-workloads soak bench fuzz check install uninstall deb
.PHONY: rpm portable wheel arch image clean help

help:
	@sed -n 's/^## //p' Makefile

## make deps      installs what is missing (Debian packages; root or sudo)
deps:
	@tools/deps build

## make build     builds build/gpuward, build/libgpuward.so, build/sim/libnvidia-ml.so.1
build: deps
	@tools/build $(BUILD)

## make run       starts the service on this machine's GPUs, or on two simulated ones
run: deps
	@TARGETS="gpuward gpuward-serve sim/libnvidia-ml.so.1" tools/build $(BUILD)
	@tools/run $(BUILD) $(SCENARIO)

## make test      checks, unit and end-to-end tests, with gcc
test:
	@tools/deps test
	@tools/test

## make test-deep the tests under the address, undefined and thread sanitizers, and the fuzzers
test-deep:
	@tools/deps test
	@tools/test deep

## make analyze   static analyzers (gcc, clang-tidy, cppcheck) and the unit tests under valgrind; half an hour
analyze:
	@tools/deps analyze
	@tools/test analyze

## make coverage  unit and end-to-end tests in a build that counts lines; prints the line coverage of each part of src
coverage:
	@tools/deps coverage
	@tools/test coverage

## make test-gpu  compares with nvidia-smi, measures energy, serves and guards, where there is a GPU
test-gpu:
	@tests/gpu/run
	@tests/gpu/energy
	@tests/gpu/service
	@tests/gpu/guard

## make test-systemd  units, logind, polkit and GameMode under a systemd of its own (root; changes nothing)
test-systemd: deps
	@tools/build build-install -Dtests=disabled -Dbench=false -Dprefix=/usr/local
	@tests/systemd/run

## make test-live  the guard and a real llama-server on a simulated GPU: LLAMA_SERVER=PROGRAM, GPUWARD_LIVE_ROOT=FOLDER, from PATH, or Debian sid (root)
test-live: build
	@tools/deps live
	@GPUWARD_BUILD=$(abspath $(BUILD)) tests/live/run || [ $$? -eq 77 ]

## make test-clients  nvtop, nvitop, gpustat, btop and pynvml of Debian sid on simulated GPUs (root; GPUWARD_CLIENTS_ROOT=FOLDER keeps them)
test-clients: build
	@tools/deps test
	@tests/clients/run

## make test-workloads  real Slurm, Podman and systemd units as workloads, in a systemd of its own (root; changes nothing)
test-workloads: build
	@tools/deps workloads
	@tests/workloads/run

## make soak      a week of the service in an hour, on the simulator: nothing may grow (SOAK_SECONDS=60: a short one)
soak:
	@tools/deps test
	@SOAK_SECONDS=$(or $(SOAK_SECONDS),3600) tools/test soak

## make bench     the figures of docs/PERFORMANCE.md next to peers measured in the same run (ARGS=--quick, ARGS="top metrics")
bench: build
	@tools/deps bench
	@bench/run $(ARGS)

## make fuzz      runs the fuzzers, SECONDS_EACH (default 60) each, and again until RUNS executions in all; prints their coverage
fuzz:
	@tools/deps fuzz
	@tools/fuzz --seconds $(or $(SECONDS_EACH),60) --runs $(or $(RUNS),0)

## make check     layers, formatting, language, and the NVML ABI where nvml.h is installed
check:
	@tools/test check

## make install   into PREFIX (default /usr/local), below DESTDIR
install: deps
	@tools/build build-install -Dtests=disabled -Dbench=false -Dprefix=$(PREFIX)
	@meson configure build-install -Dprefix=$(PREFIX)
	@ninja -C build-install >/dev/null
	@meson install -C build-install --no-rebuild

## make uninstall removes what make install put into PREFIX, below DESTDIR
uninstall:
	@DESTDIR="$(DESTDIR)" tools/uninstall build-install "$(PREFIX)"

## make deb       Debian packages into dist/: gpuward, libgpuward0, libgpuward-dev, python3-gpuward
deb:
	@tools/deps package
	@tools/package deb

## make rpm       RPM packages into dist/
rpm:
	@tools/deps package
	@tools/package rpm

## make arch      dist/arch with a PKGBUILD for makepkg
arch:
	@tools/deps build
	@tools/package arch

## make portable  dist/gpuward-VERSION-x86_64.tar.xz for glibc 2.31 and newer; needs no other library
portable:
	@tools/deps package
	@tools/package portable

## make image     an OCI image for Kubernetes, podman and docker, into dist/ and the local storage of buildah or podman
image:
	@tools/deps image
	@tools/package image

## make wheel     the Python module with its library, as a wheel, into dist/
wheel:
	@tools/deps package
	@tools/package wheel

## make clean     removes what was built
clean:
	rm -rf build build-* dist
