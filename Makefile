# gpuward: a thin front of meson.  `make help` lists what there is.
SHELL := /bin/bash
BUILD ?= build
SCENARIO ?= demo
PREFIX ?= /usr/local

.PHONY: deps build run test test-gpu bench fuzz check install clean help

help:
	@sed -n 's/^## //p' Makefile

## make deps      installs what is missing (Debian packages; root or sudo)
deps:
	@tools/deps

## make build     builds build/gpuward, build/libgpuward.so, build/sim/libnvidia-ml.so.1
build: deps
	@tools/build $(BUILD)

## make run       shows this machine's GPUs, or two simulated ones where there are none
run: build
	@tools/run $(BUILD) $(SCENARIO)

## make test      every test: gcc, clang, sanitizers, end to end
test: deps
	@tools/test

## make test-gpu  compares with nvidia-smi where there is a GPU
test-gpu:
	@tests/gpu/run

## make bench     every figure of docs/PERFORMANCE.md, as ratios measured in one run
bench: build
	@bench/run

## make fuzz      runs the fuzzers, SECONDS each (default 60)
fuzz: deps
	@tools/fuzz $(or $(SECONDS_EACH),60)

## make check     layers, formatting, style
check:
	@tools/check-layers
	@tools/check-format

## make install   into PREFIX (default /usr/local), below DESTDIR
install: build
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) >/dev/null
	@meson install -C $(BUILD) --no-rebuild

## make clean     removes what was built
clean:
	rm -rf build build-*
