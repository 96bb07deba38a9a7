#!/usr/bin/env bash
# gpu_kernels.sh OUTDIR [engine]: builds the CUDA kernels, their CPU twins, tests and benchmarks alone, without CMake and without
# most of the dependencies: for tuning on a GPU machine that has nvcc, g++, fmt, GoogleTest and Google Benchmark and little else.
# Leaves OUTDIR/{ops,moe,recurrent}_cuda_{test,bench} and OUTDIR/{attention,devices}_cuda_test. With "engine": also the whole engine
# but for tokenizers (nlohmann-json and OpenSSL's headers and library too), its golden test and the benchmarks of whole models.
# Libraries and headers are looked for in LIBS (a folder) first.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: gpu_kernels.sh OUTDIR [engine]}
what=${2:-kernels}
libs=${LIBS:-/usr/lib}
mkdir -p "$out"

common="-I. -Isrc -I$libs/include -DHAYFORK_WITH_CUDA"
host="g++ -std=c++20 -O2 -fopenmp -ffp-contract=off $common -I/usr/local/cuda/include"
device="nvcc -std=c++20 -O2 --expt-relaxed-constexpr -lineinfo -gencode arch=compute_90a,code=sm_90a $common"
v3="-mavx2 -mfma -mbmi -mbmi2 -mf16c"
v4="$v3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512"

sources="engine/kernels/*.cc engine/kernels/simd/dispatch.cc engine/cpu_context.cc engine/context.cc engine/tensor.cc
  src/base/error.cc src/base/parallel.cc src/base/units.cc
  tests/engine/ops_cuda_test.cc tests/engine/attention_cuda_test.cc tests/engine/devices_cuda_test.cc
  tests/engine/moe_cuda_test.cc tests/engine/recurrent_cuda_test.cc
  tests/bench/ops_cuda_bench.cc tests/bench/moe_cuda_bench.cc tests/bench/recurrent_cuda_bench.cc"
if [ "$what" = engine ]; then
  sources="$sources $(ls engine/*.cc | grep -v 'engine/engine.cc\|engine/cpu_context.cc\|engine/context.cc\|engine/tensor.cc')
    engine/models/*.cc engine/mixers/*.cc engine/text/stop_matcher.cc src/base/digest.cc src/base/file_map.cc src/base/json.cc
    src/base/utf8.cc tests/support/golden_model.cc tests/support/paths.cc tests/engine/golden_cuda_test.cc
    tests/engine/random_cuda_test.cc tests/bench/model_cuda_bench.cc tests/bench/orthros_cuda_bench.cc"
fi

object() { echo "$out/$(echo "$1" | tr / _).o"; }
{
  for f in engine/kernels/*.cu engine/cuda/*.cu; do
    echo "$device -c $f -o $(object "$f")"
  done
  for f in $sources; do
    echo "$host -c $f -o $(object "$f")"
  done
  for f in generic x86_v3 x86_v4 x86_v4_bf16; do
    case $f in
      generic) flags="-Wno-psabi" ;;
      x86_v3) flags=$v3 ;;
      x86_v4) flags=$v4 ;;
      x86_v4_bf16) flags="$v4 -mavx512bf16" ;;
    esac
    echo "$host -O3 $flags -c engine/kernels/simd/$f.cc -o $out/simd_$f.o"
  done
} | xargs -P "$(nproc)" -d '\n' -I{} sh -c '{} || exit 255'

objects=$(ls "$out"/*.o | grep -v '_test\.cc\.o\|_bench\.cc\.o')
program() {  # NAME SOURCE LIBRARIES…
  local name=$1 source=$2
  shift 2
  nvcc -Xcompiler -fopenmp -L"$libs" -Xlinker -rpath=/usr/local/cuda/lib64 -o "$out/$name" "$(object "$source")" $objects "$@" -lfmt -ldl
}
crypto=
[ "$what" = engine ] && crypto=-lcrypto
for part in ops attention devices moe recurrent; do
  program ${part}_cuda_test tests/engine/${part}_cuda_test.cc -lgtest -lgtest_main $crypto &
done
for part in ops moe recurrent; do
  program ${part}_cuda_bench tests/bench/${part}_cuda_bench.cc -lbenchmark $crypto &
done
if [ "$what" = engine ]; then
  program golden_cuda_test tests/engine/golden_cuda_test.cc -lgtest -lgtest_main $crypto &
  program random_cuda_test tests/engine/random_cuda_test.cc -lgtest -lgtest_main $crypto &
  program model_cuda_bench tests/bench/model_cuda_bench.cc $crypto &
  program orthros_cuda_bench tests/bench/orthros_cuda_bench.cc $crypto &
fi
wait
names="$(echo {ops,moe,recurrent}_cuda_{test,bench}) attention_cuda_test devices_cuda_test"
[ "$what" = engine ] && names="$names golden_cuda_test random_cuda_test model_cuda_bench orthros_cuda_bench"
for name in $names; do [ -x "$out/$name" ]; done
