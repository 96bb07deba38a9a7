#!/usr/bin/env bash
# gpu_kernels.sh OUTDIR: builds the CUDA kernels, their CPU twins, tests and benchmarks alone, without CMake and without most
# of the dependencies: for tuning on a GPU machine that has nvcc, g++, fmt, GoogleTest and Google Benchmark and little else.
# Libraries and headers are looked for in LIBS (a folder) first. Leaves OUTDIR/{ops,moe,recurrent}_cuda_{test,bench}.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: gpu_kernels.sh OUTDIR}
libs=${LIBS:-/usr/lib}
mkdir -p "$out"

common="-I. -Isrc -I$libs/include -DHAYFORK_WITH_CUDA"
host="g++ -std=c++20 -O2 -fopenmp -ffp-contract=off $common -I/usr/local/cuda/include"
device="nvcc -std=c++20 -O2 --expt-relaxed-constexpr -lineinfo -gencode arch=compute_90a,code=sm_90a $common"
v3="-mavx2 -mfma -mbmi -mbmi2 -mf16c"
v4="$v3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512"

{
  for f in engine/kernels/*.cc engine/kernels/simd/dispatch.cc engine/cpu_context.cc engine/context.cc engine/tensor.cc \
           src/base/error.cc src/base/parallel.cc \
           tests/engine/{ops,moe,recurrent}_cuda_test.cc tests/bench/{ops,moe,recurrent}_cuda_bench.cc; do
    echo "$host -c $f -o $out/$(echo "$f" | tr / _).o"
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
  for f in engine/kernels/*.cu engine/cuda/*.cu; do
    echo "$device -c $f -o $out/$(echo "$f" | tr / _).o"
  done
} | xargs -P "$(nproc)" -d '\n' -I{} sh -c '{} || exit 255'

objects=$(ls "$out"/*.o | grep -v '_test\.cc\.o\|_bench\.cc\.o')
link="nvcc -Xcompiler -fopenmp -L$libs -L/usr/local/cuda/lib64"
for part in ops moe recurrent; do
  $link -o "$out/${part}_cuda_test" "$out/tests_engine_${part}_cuda_test.cc.o" $objects -lgtest -lgtest_main -lfmt -lcublasLt
  $link -o "$out/${part}_cuda_bench" "$out/tests_bench_${part}_cuda_bench.cc.o" $objects -lbenchmark -lfmt -lcublasLt
done
