#!/usr/bin/env bash
# Compares FP32, FP16 and INT8 of one layer: latency, power, energy per iteration, size.
#
#   examples/precision/run.sh --gpu cuda:0                 on a GPU; takes some minutes
#   FAST=1 examples/precision/run.sh --simulate=idle-h200  without a GPU; takes seconds
#
# Arguments are passed to `gpuward measure`.  Environment variables:
#   GPUWARD  the program (default: gpuward in $BUILD, in build of this tree, else in PATH)
#   PYTHON   python3 with PyTorch (default: python3)
#   OUT      folder for the results (default: precision-results)
#   TRIALS   runs of each precision (default: 5; FAST: 1)
#   FAST=1   small layers and few iterations
set -euo pipefail
here=$(dirname "$(realpath "$0")")
out=${OUT:-precision-results}
python=${PYTHON:-python3}
gpuward=${GPUWARD:-}
for where in ${BUILD:+"$BUILD/"} "$here/../../build/" ""; do
	[ -n "$gpuward" ] || gpuward=$(command -v "${where}gpuward" || true)
done
if ! command -v "$gpuward" >/dev/null; then
	echo "$0: gpuward was not found: build it (make), or set BUILD=folder or GPUWARD=program" >&2
	exit 127
fi

# Only the part that infer.py marks as `inference` is measured, without loading and warm-up.  The
# sensor needs a measurement of ten seconds.  These numbers of iterations take ten seconds on an H200 at its
# peak rates.  For another GPU, look at Time in the result and change the numbers.
declare -A iterations=([fp32]=700 [fp16]=8000 [int8]=8000)
trials=${TRIALS:-5}
warmup=1
if [ "${FAST:-0}" != 0 ]; then
	iterations=([fp32]=400 [fp16]=400 [int8]=400)
	trials=${TRIALS:-1}
	warmup=0
fi

mkdir -p "$out"
for precision in fp32 fp16 int8; do
	"$gpuward" measure --label "$precision" --iterations "${iterations[$precision]}" \
		--model-size "$("$python" "$here/infer.py" "$precision" --model-bytes)" \
		--part inference --trials "$trials" --warmup "$warmup" "$@" -o "$out/$precision.json" -- \
		"$python" "$here/infer.py" "$precision" --iterations "${iterations[$precision]}"
done
"$gpuward" compare "$out/fp32.json" "$out/fp16.json" "$out/int8.json"
