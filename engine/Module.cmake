# engine/kernels/simd: one source per instruction set; dispatch.cc chooses at run time. The rest of the program stays
# at the compiler's baseline.
set(simd ${CMAKE_SOURCE_DIR}/engine/kernels/simd)
set_source_files_properties(${simd}/generic.cc PROPERTIES COMPILE_OPTIONS "-O3;-Wno-psabi")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(v3 -mavx2 -mfma -mbmi -mbmi2 -mf16c)
  # -Wno-maybe-uninitialized -Wno-uninitialized: false alarms of g++ 12 inside its own AVX-512 header (GCC PR 105593).
  set(v4 ${v3} -Wno-maybe-uninitialized -Wno-uninitialized -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  set_source_files_properties(${simd}/x86_v3.cc PROPERTIES COMPILE_OPTIONS "-O3;${v3}")
  set_source_files_properties(${simd}/x86_v4.cc PROPERTIES COMPILE_OPTIONS "-O3;${v4}")
  set_source_files_properties(${simd}/x86_v4_bf16.cc PROPERTIES COMPILE_OPTIONS "-O3;${v4};-mavx512bf16")
endif()

# CUDA sources without device code are the host compiler's alone: nvcc would read their headers once more for each
# architecture.
if(HAYFORK_CUDA)
  file(GLOB host CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/cuda/*.cu)
  set_source_files_properties(${host} ${CMAKE_SOURCE_DIR}/engine/kernels/tensor_map.cu PROPERTIES LANGUAGE CXX
    COMPILE_DEFINITIONS HAYFORK_WITH_CUDA COMPILE_OPTIONS "-isystem;${CUDAToolkit_INCLUDE_DIRS}")
endif()

if(HAY_PRECOMPILE)  # the tests' arithmetic is here: worth optimising, with flags that the precompiled headers do not have
  file(GLOB kernels ${CMAKE_SOURCE_DIR}/engine/kernels/*.cc)
  file(GLOB simd_sources ${simd}/*.cc)
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS -O1)
  set_source_files_properties(${kernels} ${simd_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endif()
