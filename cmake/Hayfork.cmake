# Helpers of the build: hay_module (a folder is a library), hay_program, hay_test, hay_bench, hay_fuzz.
# Sources are globbed with CONFIGURE_DEPENDS, so a new file needs no list.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # asserts stay on: HAY_CHECK and assert cost nothing measurable outside kernels

find_program(HAY_CCACHE ccache)
if(HAY_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HAY_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${HAY_CCACHE})
endif()
find_program(HAY_MOLD mold)
if(HAY_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(HAYFORK_CUDA)
  # sm_90a code is what a Hopper GPU runs; compute_80 PTX serves every other device from compute capability 8.0 on.
  # Files named *_sm90.cu use Hopper's own instructions and are compiled for it alone.
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90a-real)
  set(CMAKE_CUDA_STANDARD_REQUIRED OFF)  # CMake 3.25 does not know nvcc 13's dialects: -std=c++20 is passed by hand
  set(CMAKE_CUDA_EXTENSIONS OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  list(APPEND CMAKE_BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR})  # where cuBLASLt is looked for first
endif()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc i18n)
find_package(yaml-cpp REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(RSVG REQUIRED IMPORTED_TARGET librsvg-2.0)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)

# -Wno-restrict: false alarms of g++ 12 on std::string (GCC PR 105651). -ffp-contract=off: a fused multiply-add is written
# where it is meant, so that a row's bits do not depend on how a loop was compiled.
add_library(hay_options INTERFACE)
target_compile_options(hay_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(HAYFORK_WERROR)
  target_compile_options(hay_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(HAYFORK_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
# Sanitized tests: what is built whole, run once and started often; a fuzzer is one program that runs long.
if(HAYFORK_SANITIZE AND NOT HAYFORK_FUZZ)
  set(HAY_PRECOMPILE ON)  # the compiler cache finds precompiled headers by what they hold, not by the time of their files
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -fno-pch-timestamp)
  endif()
  if(HAY_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${HAY_CCACHE})
  endif()
  # Null pointers and overruns of objects are the address sanitizer's finds as well; these checks double the code.
  # -pthread: headers can be precompiled for all only with the same flags for all.
  add_compile_options(-fno-sanitize=null,object-size -pthread)
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")  # but for what computes: engine/Module.cmake
  # Programs at fixed addresses: the sanitizers' tables are a million pointers, which each start would relocate.
  unset(CMAKE_POSITION_INDEPENDENT_CODE)
  string(APPEND CMAKE_CXX_FLAGS " -fno-pie")
  string(APPEND CMAKE_EXE_LINKER_FLAGS " -no-pie")
endif()
if(HAYFORK_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of every module, not of the fuzzer's own file alone
endif()
target_include_directories(hay_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)

# The libraries each module may see, which is all it may include.
set(HAY_LIBS_base OpenSSL::Crypto OpenMP::OpenMP_CXX Threads::Threads fmt::fmt nlohmann_json::nlohmann_json PkgConfig::ZSTD)
set(HAY_LIBS_engine ICU::uc ICU::i18n PkgConfig::SENTENCEPIECE)
set(HAY_LIBS_runs SQLite::SQLite3 PkgConfig::RSVG)
set(HAY_LIBS_datasets yaml-cpp ICU::uc ICU::i18n ZLIB::ZLIB)
set(HAY_LIBS_tasks yaml-cpp)
set(HAY_LIBS_metrics ICU::uc ICU::i18n)

# hay_precompile(<target> <owner> <header>...): parses the headers that most sources ask for once, for `owner` and every
# later target that names it. Only where HAY_PRECOMPILE is on: elsewhere each source shows that it includes what it uses.
function(hay_precompile target owner)
  if(NOT HAY_PRECOMPILE)
    return()
  elseif(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE <algorithm> <charconv> <chrono> <cmath> <filesystem> <fstream> <functional>
      <map> <memory> <optional> <set> <span> <sstream> <string> <unordered_map> <vector> <fmt/format.h>
      <nlohmann/json.hpp> ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

function(hay_module name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
  if(NOT sources)
    add_library(hay_${name} INTERFACE)
    target_link_libraries(hay_${name} INTERFACE hay_options ${HAY_LIBS_${name}})
    foreach(dep ${ARGN})
      target_link_libraries(hay_${name} INTERFACE hay_${dep})
    endforeach()
    return()
  endif()
  add_library(hay_${name} STATIC ${sources})
  if(HAYFORK_CUDA AND cuda_sources)
    # One library a set of architectures: the property belongs to targets.
    set(hopper_sources ${cuda_sources})
    list(FILTER hopper_sources INCLUDE REGEX "_sm90\\.cu$")
    list(FILTER cuda_sources EXCLUDE REGEX "_sm90\\.cu$")
    target_sources(hay_${name} PRIVATE ${cuda_sources})
    target_compile_options(hay_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall>)
    # Only the sources that ask for it see the backend, and none but .cu files the toolkit's headers: all other objects are
    # the same as in a CPU build, so that one compiler cache serves both.
    foreach(source ${sources})
      file(STRINGS ${source} asks REGEX "HAYFORK_WITH_CUDA|HAY_DISPATCH" LIMIT_COUNT 1)
      if(asks)
        set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS HAYFORK_WITH_CUDA)
      endif()
    endforeach()
    target_compile_definitions(hay_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:HAYFORK_WITH_CUDA>)
    # cuBLASLt is loaded when a GPU is used (engine/cuda/cublas_lt.cuh), from the toolkit's folder or where the loader looks.
    target_link_libraries(hay_${name} PUBLIC $<LINK_ONLY:CUDA::cudart_static> ${CMAKE_DL_LIBS})
    if(hopper_sources)
      add_library(hay_${name}_sm90 OBJECT ${hopper_sources})
      set_target_properties(hay_${name}_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
      target_compile_options(hay_${name}_sm90 PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall>)
      target_compile_definitions(hay_${name}_sm90 PRIVATE HAYFORK_WITH_CUDA)
      target_include_directories(hay_${name}_sm90 PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
      target_sources(hay_${name} PRIVATE $<TARGET_OBJECTS:hay_${name}_sm90>)
    endif()
  endif()
  target_link_libraries(hay_${name} PUBLIC hay_options ${HAY_LIBS_${name}})
  hay_precompile(hay_${name} hay_base)
  foreach(dep ${ARGN})
    target_link_libraries(hay_${name} PUBLIC hay_${dep})
  endforeach()
  if(EXISTS ${CMAKE_SOURCE_DIR}/${folder}/Module.cmake)
    include(${CMAKE_SOURCE_DIR}/${folder}/Module.cmake)  # per-file flags and generated sources of this module
  endif()
endfunction()

function(hay_program name folder)
  find_package(CLI11 REQUIRED)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX ".*/main\\.cc$")
  add_library(hay_cli STATIC ${sources})  # everything but main, so that tests can call it
  target_link_libraries(hay_cli PUBLIC hay_options CLI11::CLI11 yaml-cpp $<LINK_ONLY:PkgConfig::HTTPLIB>)
  foreach(dep ${ARGN})
    target_link_libraries(hay_cli PUBLIC hay_${dep})
  endforeach()
  # The library's own definitions, which change its structures, for the one source that includes it.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/${folder}/http_server.cc PROPERTIES COMPILE_OPTIONS "${HTTPLIB_CFLAGS_OTHER}")
  hay_precompile(hay_cli hay_base)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/${folder}/main.cc)
  target_link_libraries(${name} PRIVATE hay_cli)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

set(HAY_TEST_TIMEOUT 600)
if(HAYFORK_SANITIZE)
  set(HAY_TEST_TIMEOUT 1800)  # tests that start the program a hundred times
endif()

# hay_tests(<folder> <module>...): one executable and one CTest entry per <stem>_test.cc in tests/<folder>.
# Labels come from the name: *_cuda_test → cuda, *_data_test → data, *_slow_test → slow; the rest cpu (data and slow are cpu too).
function(hay_tests folder)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cc)
  foreach(source ${tests})
    get_filename_component(stem ${source} NAME_WE)
    string(REPLACE "/" "_" prefix ${folder})
    set(target ${prefix}_${stem})
    set(labels cpu)
    if(stem MATCHES "_cuda_test$")
      set(labels cuda)
      if(NOT HAYFORK_CUDA)
        continue()
      endif()
    endif()
    if(stem MATCHES "_(data|slow)_test$")
      list(APPEND labels ${CMAKE_MATCH_1})
      if(NOT HAYFORK_LARGE_TESTS)
        message(STATUS "left out: ${folder}/${stem}")
        continue()
      endif()
    endif()
    add_executable(${target} ${source})
    foreach(dep ${ARGN})
      target_link_libraries(${target} PRIVATE hay_${dep})
    endforeach()
    target_compile_options(${target} PRIVATE -O0)  # tests are compiled often and run once
    target_link_libraries(${target} PRIVATE hay_test_support GTest::gtest GTest::gmock GTest::gtest_main)
    hay_precompile(${target} hay_test_support)
    add_test(NAME ${folder}/${stem} COMMAND ${target})
    set_tests_properties(${folder}/${stem} PROPERTIES LABELS "${labels}" TIMEOUT ${HAY_TEST_TIMEOUT}
      ENVIRONMENT "OMP_WAIT_POLICY=passive;HAYFORK_SOURCE_DIR=${CMAKE_SOURCE_DIR};HAYFORK_BINARY=${CMAKE_BINARY_DIR}/bin/hayfork;LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0;GOMP_SPINCOUNT=1000")
  endforeach()
endfunction()

# hay_fuzzers(<module>...): every tests/fuzz/<stem>_fuzz.cc defines LLVMFuzzerTestOneInput; corpus in tests/fuzz/corpus/<stem>.
# With HAYFORK_FUZZ they are libFuzzer programs; otherwise each is linked to a driver that runs its corpus once (a CTest entry).
function(hay_fuzzers)
  file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
  foreach(source ${fuzzers})
    get_filename_component(stem ${source} NAME_WE)
    string(REPLACE "_fuzz" "" subject ${stem})
    add_executable(${stem} ${source})
    foreach(dep ${ARGN})
      target_link_libraries(${stem} PRIVATE hay_${dep})
    endforeach()
    if(HAYFORK_FUZZ)
      target_compile_options(${stem} PRIVATE -fsanitize=fuzzer)
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    else()
      target_sources(${stem} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus_main.cc)
    endif()
    set(once)
    if(HAYFORK_FUZZ)
      set(once -runs=0)
    endif()
    add_test(NAME fuzz/${subject} COMMAND ${stem} ${once} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${subject})
    set_tests_properties(fuzz/${subject} PROPERTIES LABELS "cpu;fuzz" TIMEOUT 300)
  endforeach()
endfunction()

# hay_benches(<module>...): tests/bench/<stem>_bench.cc, Google Benchmark programs.
function(hay_benches)
  file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/bench/*_bench.cc)
  foreach(source ${benches})
    get_filename_component(stem ${source} NAME_WE)
    if(stem MATCHES "_cuda_bench$" AND NOT HAYFORK_CUDA)
      continue()
    endif()
    add_executable(${stem} ${source})
    foreach(dep ${ARGN})
      target_link_libraries(${stem} PRIVATE hay_${dep})
    endforeach()
    target_link_libraries(${stem} PRIVATE benchmark::benchmark)
  endforeach()
endfunction()

# generated/base/build_info.h: version and commit. The commit is read at configure and again whenever HEAD moves.
include(${CMAKE_SOURCE_DIR}/cmake/BuildInfo.cmake)
