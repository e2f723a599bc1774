# One rule for names: folder = namespace = CMake target = include prefix = test folder.

# Only to see that it compiles: kernels for the oldest GPUs, and, where no GPU is, tests that need one.
add_custom_target(gpu_checks)

# cohort_together(<target> <files>): so many source files at a time (0: all) are compiled as one, in half the time, most of
# which goes into headers. Names in their anonymous namespaces must differ.
function(cohort_together target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # no file is included by others
endfunction()

# cohort_library(<room> HOST a.cc ... CUDA b.cu ... LINK rooms and libraries ...)
# A static library of the room's sources; the CUDA list is left out of a build without a CUDA compiler.
function(cohort_library room)
  cmake_parse_arguments(ARG "" "" "HOST;CUDA;LINK" ${ARGN})
  add_library(${room} STATIC ${ARG_HOST})
  add_library(cohort::${room} ALIAS ${room})
  if(COHORT_WITH_CUDA AND ARG_CUDA)
    target_sources(${room} PRIVATE ${ARG_CUDA})
  endif()
  target_link_libraries(${room} PUBLIC $<BUILD_INTERFACE:cohort_flags> ${ARG_LINK})
  if(COHORT_TOGETHER)
    cohort_together(${room} 12)
  endif()
  if(COHORT_WITH_CUDA AND COHORT_TESTS AND NOT CMAKE_CUDA_ARCHITECTURES MATCHES "80")
    cohort_compiles_for_sm80(${room} ${ARG_CUDA})
  endif()
endfunction()

# The kernels of a room for the oldest GPUs that are supported, where the build is not for these: only to see that they
# compile.
function(cohort_compiles_for_sm80 room)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "[.]cu$")
  if(kernels)
    add_library(${room}_sm80 OBJECT EXCLUDE_FROM_ALL ${kernels})
    add_dependencies(gpu_checks ${room}_sm80)
    set_target_properties(${room}_sm80 PROPERTIES CUDA_ARCHITECTURES 80-real CUDA_CUBIN_COMPILATION ON)
    target_link_libraries(${room}_sm80 PRIVATE cohort_flags)
  endif()
endfunction()

# cohort_test(<room> HOST a_test.cc ... CUDA b_test.cu ... LINK ...): the GoogleTest program tests/<room>.
# Tests whose suite name holds "Gpu" need a GPU and carry the ctest label "gpu". All of a *.cu do.
function(cohort_test room)
  if(NOT COHORT_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "HOST;CUDA;LINK" ${ARGN})
  set(folder ${PROJECT_SOURCE_DIR}/tests/${room})
  list(TRANSFORM ARG_HOST PREPEND ${folder}/)
  list(TRANSFORM ARG_CUDA PREPEND ${folder}/)
  add_executable(${room}_test ${ARG_HOST})
  if(COHORT_WITH_CUDA AND ARG_CUDA)
    set(on_gpu ${COHORT_GPU_TESTS})
    set(kernels ${ARG_CUDA})
    list(FILTER kernels INCLUDE REGEX "[.]cu$")
    set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # most machines never compile them
    list(FILTER ARG_CUDA EXCLUDE REGEX "[.]cu$")
    target_sources(${room}_test PRIVATE ${ARG_CUDA})
    if(COHORT_GPU_TESTS)
      target_sources(${room}_test PRIVATE ${kernels})
    elseif(kernels)
      add_library(${room}_gpu_test OBJECT EXCLUDE_FROM_ALL ${kernels})
      target_link_libraries(${room}_gpu_test PRIVATE cohort::${room} GTest::gtest ${ARG_LINK})
      add_dependencies(gpu_checks ${room}_gpu_test)
    endif()
  endif()
  # Tests compute little, and compile in three quarters of the time.
  target_compile_options(${room}_test PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  target_link_libraries(${room}_test PRIVATE cohort::${room} GTest::gtest_main ${ARG_LINK})
  cohort_together(${room}_test 6)
  add_test(NAME ${room} COMMAND ${room}_test --gtest_filter=-*Gpu*)
  set(seconds 300)
  if(CMAKE_CXX_FLAGS MATCHES "sanitize=")
    set(seconds 3000)
  endif()
  # The programs run side by side: threads that wait must not spin.
  set_tests_properties(${room} PROPERTIES LABELS cpu TIMEOUT ${seconds}
    ENVIRONMENT "OMP_WAIT_POLICY=passive;${COHORT_TSAN_ENVIRONMENT}")
  if(on_gpu)
    add_test(NAME ${room}_gpu COMMAND ${room}_test --gtest_filter=*Gpu*)
    set_tests_properties(${room}_gpu PROPERTIES LABELS gpu TIMEOUT 300)
  endif()
endfunction()

# cohort_fuzz(<room> TARGETS name ... READERS a.cc ...): the programs fuzz_<room>_<name> of tests/<room>/fuzz/<name>.cc.
# The readers named are compiled for them under the address and undefined-behaviour sanitizers, whatever the build's
# options are; those that read JSON alone take long to compile and index nothing, preset asan has them. Each program
# reads a fixed number of inputs as a test. With COHORT_FUZZ (preset fuzz) it is libFuzzer's.
set(COHORT_FUZZ_RUNS 2000 CACHE STRING "Inputs that a fuzz test reads")
function(cohort_fuzz room)
  if(NOT COHORT_TESTS OR CMAKE_CXX_FLAGS MATCHES "sanitize=thread")  # one program has one of the two
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "TARGETS;READERS" ${ARGN})
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  if(NOT TARGET fuzz)
    add_custom_target(fuzz)
    add_library(fuzz_main OBJECT EXCLUDE_FROM_ALL ${tests}/fuzz/$<IF:$<BOOL:${COHORT_FUZZ}>,libfuzzer.cc,driver.cc>)
    cohort_sanitize(fuzz_main)
  endif()
  set(sanitized)
  if(ARG_READERS AND NOT COHORT_FUZZ)
    set(sanitized ${room}_sanitized)
    add_library(${sanitized} OBJECT EXCLUDE_FROM_ALL ${ARG_READERS})
    target_link_libraries(${sanitized} PRIVATE cohort::${room})
    cohort_together(${sanitized} 0)
    cohort_sanitize(${sanitized})
  endif()
  foreach(name ${ARG_TARGETS})
    set(program fuzz_${room}_${name})
    add_executable(${program} ${tests}/${room}/fuzz/${name}.cc)
    cohort_sanitize(${program})
    target_link_libraries(${program} PRIVATE fuzz_main ${sanitized} cohort::${room})
    target_link_options(${program} PRIVATE -fsanitize=address,undefined $<$<BOOL:${COHORT_FUZZ}>:-fsanitize=fuzzer>)
    if(COHORT_TOGETHER)  # the library's objects then have the readers, too; those named first count
      target_link_options(${program} PRIVATE -Wl,--allow-multiple-definition)
    endif()
    add_dependencies(fuzz ${program})
    if(NOT COHORT_FUZZ)
      add_test(NAME ${program} COMMAND ${program} --runs ${COHORT_FUZZ_RUNS})
      set_tests_properties(${program} PROPERTIES LABELS cpu TIMEOUT 120 ENVIRONMENT OMP_NUM_THREADS=1)
    endif()
  endforeach()
endfunction()

# Without optimization where there are few inputs: compiling takes longer than they do.
function(cohort_sanitize target)
  target_link_libraries(${target} PRIVATE cohort_flags)
  target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer $<IF:$<BOOL:${COHORT_FUZZ}>,-O1,-O0>)
endfunction()

# What a user runs, without the tests: extensions and programs.
add_custom_target(programs)

# cohort_program(<target> SOURCES main.cc ... LINK ...): a program in <build>/bin, and in cohort/bin of the wheel.
function(cohort_program target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE cohort_flags ${ARG_LINK})
  cohort_for_old_system(${target})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS ${target} RUNTIME DESTINATION cohort_gnn/bin)
  add_dependencies(programs ${target})
endfunction()

# The Python package, laid out in the build tree by links, so that `PYTHONPATH=<build>/python` runs the sources as they are.
# Each configuration makes the links anew: one to a file that has moved would be a module that cannot be imported.
set(COHORT_PYTHON_TREE ${PROJECT_BINARY_DIR}/python/cohort_gnn)
file(GLOB_RECURSE links LIST_DIRECTORIES true ${COHORT_PYTHON_TREE}/*)
foreach(link ${links})
  if(IS_SYMLINK ${link})
    file(REMOVE ${link})
  endif()
endforeach()

# cohort_python(<folder> [PACKAGE name]): the folder's *.py and *.pyi become cohort_gnn.<name> (default: the folder; "."
# is the top).
function(cohort_python folder)
  cmake_parse_arguments(ARG "" "PACKAGE" "" ${ARGN})
  if(NOT ARG_PACKAGE)
    set(ARG_PACKAGE ${folder})
  endif()
  file(GLOB modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.py ${PROJECT_SOURCE_DIR}/${folder}/*.pyi
    ${PROJECT_SOURCE_DIR}/${folder}/py.typed)
  file(MAKE_DIRECTORY ${COHORT_PYTHON_TREE}/${ARG_PACKAGE})
  foreach(module ${modules})
    get_filename_component(name ${module} NAME)
    file(CREATE_LINK ${module} ${COHORT_PYTHON_TREE}/${ARG_PACKAGE}/${name} SYMBOLIC)
  endforeach()
  cmake_path(SET destination NORMALIZE cohort_gnn/${ARG_PACKAGE})
  install(FILES ${modules} DESTINATION ${destination})
endfunction()

# cohort_extension(<target> PACKAGE name SOURCES ... LINK ...): the nanobind module cohort_gnn.<name>._native. Its stub for
# type checkers is <name>/_native.pyi; tests/types_test.py says how it is written.
function(cohort_extension target)
  cmake_parse_arguments(ARG "" "PACKAGE" "SOURCES;LINK" ${ARGN})
  # NB_SUPPRESS_WARNINGS: nanobind's headers are not ours to warn about.
  nanobind_add_module(${target} NB_STATIC STABLE_ABI NB_SUPPRESS_WARNINGS ${ARG_SOURCES})
  foreach(library nanobind-static nanobind-static-abi3)
    if(TARGET ${library})
      cohort_together(${library} 0)
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE cohort_flags ${ARG_LINK})
  cohort_for_old_system(${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME _native LIBRARY_OUTPUT_DIRECTORY ${COHORT_PYTHON_TREE}/${ARG_PACKAGE})
  install(TARGETS ${target} LIBRARY DESTINATION cohort_gnn/${ARG_PACKAGE})
  add_dependencies(programs ${target})
endfunction()
