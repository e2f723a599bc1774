# The compilers: C++20, an optional CUDA compiler, and warnings that are errors.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(COHORT_CCACHE ccache)
if(COHORT_CCACHE)
  # Paths below the checkout do not count: a second checkout finds the objects of the first.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    ${COHORT_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  if(DEFINED ENV{COHORT_CUDA_ARCHITECTURES})
    set(CMAKE_CUDA_ARCHITECTURES $ENV{COHORT_CUDA_ARCHITECTURES})
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # machine code for both, PTX of the last for newer GPUs
  endif()
endif()

if(COHORT_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  set(COHORT_WITH_CUDA ${CMAKE_CUDA_COMPILER})
elseif(COHORT_CUDA)
  set(COHORT_WITH_CUDA ON)
endif()
if(COHORT_WITH_CUDA)
  set(COHORT_WITH_CUDA ON)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)
  if(CUDAToolkit_VERSION VERSION_LESS 12.5)
    message(FATAL_ERROR "cohort: expected a CUDA Toolkit of 12.5 or newer, found ${CUDAToolkit_VERSION} "
      "(${CUDAToolkit_BIN_DIR}): install a newer one, or build for the CPU alone with -DCOHORT_CUDA=OFF")
  endif()
  message(STATUS "cohort: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  set(COHORT_WITH_CUDA OFF)
  message(STATUS "cohort: no CUDA compiler: this build has the CPU backend only")
endif()

# Preset tsan: what of OpenMP orders accesses, the thread sanitizer hears from libomp's tool Archer.
if(CMAKE_CXX_FLAGS MATCHES "sanitize=thread")
  find_library(COHORT_ARCHER archer PATHS /usr/lib/llvm-14/lib /usr/lib/llvm/lib)
  if(NOT COHORT_ARCHER)
    message(FATAL_ERROR "cohort: no libarcher.so beside clang's libomp; apt-get install libomp-dev")
  endif()
  set(COHORT_TSAN_ENVIRONMENT "OMP_NUM_THREADS=4;OMP_TOOL_LIBRARIES=${COHORT_ARCHER}"
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
endif()

# Warnings are errors with the compilers that the tests are built with day by day. Newer ones warn of more, some of it
# wrong (GCC 13's array-bounds in fmt), and nobody's first build shall end there.
set(warnings_are_errors OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(warnings_are_errors ON)
endif()

# One interface target carries the flags of every target of ours.
add_library(cohort_flags INTERFACE)
target_include_directories(cohort_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(cohort_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --expt-extended-lambda -Xcompiler=-Wall,-Wextra>)
if(warnings_are_errors)
  target_compile_options(cohort_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
# Nothing asks which operations on floats would trap; loops that choose between two can then use vectors.
target_compile_options(cohort_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-trapping-math>)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")  # which has no fused multiply-add unless asked: results are of two roundings
  target_compile_options(cohort_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>)
endif()
target_compile_definitions(cohort_flags INTERFACE COHORT_VERSION="${PROJECT_VERSION}"
  $<$<BOOL:${COHORT_WITH_CUDA}>:COHORT_WITH_CUDA>)
if(COHORT_WITH_CUDA)
  target_link_libraries(cohort_flags INTERFACE CUDA::cudart_static)
endif()
