# Each target calls meson or a script in tools or tests.  `make help` lists the targets.
SHELL := /bin/bash
BUILD ?= build
SCENARIO ?= demo
PREFIX ?= /usr/local

.PHONY: deps build run test test-deep coverage analyze test-gpu test-live test-clients test-systemd test-workloads soak bench fuzz check install uninstall deb
.PHONY: rpm portable wheel arch image clean help

help:
	@sed -n 's/^## //p' Makefile

## make deps      installs the Debian packages that the build needs and that are missing (needs root or sudo)
deps:
	@tools/deps build

## make build     builds build/gpuward, build/libgpuward.so, build/sim/libnvidia-ml.so.1
build: deps
	@tools/build $(BUILD)

## make run       starts the service on this machine's GPUs, or on two simulated ones
run: deps
	@TARGETS="gpuward gpuward-serve sim/libnvidia-ml.so.1" tools/build $(BUILD)
	@tools/run $(BUILD) $(SCENARIO)

## make test      runs the checks, and the unit and end-to-end tests in a build with gcc
test:
	@tools/deps test
	@tools/test

## make test-deep runs the tests with the address, undefined and thread sanitizers, and the fuzzers
test-deep:
	@tools/deps test
	@tools/test deep

## make analyze   runs static analyzers (gcc, clang-tidy, cppcheck) and the unit tests under valgrind; takes half an hour
analyze:
	@tools/deps analyze
	@tools/test analyze

## make coverage  runs the unit and end-to-end tests in a build that counts lines; prints the line coverage of each part of src
coverage:
	@tools/deps coverage
	@tools/test coverage

## make test-gpu  tests on a real GPU: figures compared with nvidia-smi, energy, the service, the guard
test-gpu:
	@tests/gpu/run
	@tests/gpu/energy
	@tests/gpu/service
	@tests/gpu/guard

## make test-systemd  units, logind, polkit and GameMode under a separate systemd (needs root)
test-systemd: deps
	@tools/build build-install -Dtests=disabled -Dbench=false -Dprefix=/usr/local
	@tests/systemd/run

## make test-live  the guard and a real llama-server on a simulated GPU (needs root; tests/live/run says where it finds the server)
test-live: build
	@tools/deps live
	@GPUWARD_BUILD=$(abspath $(BUILD)) tests/live/run || [ $$? -eq 77 ]

## make test-clients  nvtop, nvitop, gpustat, btop and pynvml of Debian sid on simulated GPUs (needs root)
test-clients: build
	@tools/deps test
	@tests/clients/run

## make test-workloads  real Slurm, Podman and systemd units as workloads, under a separate systemd (needs root)
test-workloads: build
	@tools/deps workloads
	@tests/workloads/run

## make soak      simulates a week of the service in an hour; its memory, files and database must not grow (SOAK_SECONDS=60: in a minute)
soak:
	@tools/deps test
	@SOAK_SECONDS=$(or $(SOAK_SECONDS),3600) tools/test soak

## make bench     measures the figures of docs/PERFORMANCE.md, and those of similar programs (ARGS="--quick top")
bench: build
	@tools/deps bench
	@bench/run $(ARGS)

## make fuzz      runs each fuzzer for SECONDS_EACH (default 60) and prints the coverage; RUNS=N: repeats this until all fuzzers together made N executions
fuzz:
	@tools/deps fuzz
	@tools/fuzz --seconds $(or $(SECONDS_EACH),60) --runs $(or $(RUNS),0)

## make check     checks layers, formatting and language, and the NVML ABI if nvml.h is installed
check:
	@tools/test check

## make install   installs into PREFIX (default /usr/local), below DESTDIR
install: deps
	@tools/build build-install -Dtests=disabled -Dbench=false -Dprefix=$(PREFIX)
	@meson configure build-install -Dprefix=$(PREFIX)
	@ninja -C build-install >/dev/null
	@meson install -C build-install --no-rebuild

## make uninstall removes what make install put into PREFIX, below DESTDIR
uninstall:
	@DESTDIR="$(DESTDIR)" tools/uninstall build-install "$(PREFIX)"

## make deb       builds Debian packages in dist/: gpuward, libgpuward0, libgpuward-dev, python3-gpuward
deb:
	@tools/deps package
	@tools/package deb

## make rpm       builds RPM packages in dist/
rpm:
	@tools/deps package
	@tools/package rpm

## make arch      makes dist/arch with a source archive and a PKGBUILD for makepkg
arch:
	@tools/deps build
	@tools/package arch

## make portable  builds dist/gpuward-VERSION-x86_64.tar.xz, which runs with glibc 2.31 or newer and needs no other library
portable:
	@tools/deps package
	@tools/package portable

## make image     builds an OCI image for Kubernetes, podman and docker, in dist/ and in the local storage of buildah or podman
image:
	@tools/deps image
	@tools/package image

## make wheel     builds a wheel in dist/: the Python module with its library
wheel:
	@tools/deps package
	@tools/package wheel

## make clean     removes what was built
clean:
	rm -rf build build-* dist
