# The C++ libraries of a build for other CMake projects: find_package(cohort) and cohort::<room>. Component "cpp" of an
# installation has nothing else: cmake --install BUILD --component cpp --prefix FOLDER
include(CMakePackageConfigHelpers)

set(COHORT_CMAKE_FOLDER lib/cmake/cohort)

# cohort_installed(<room> HEADERS a.h ...): the room's library, and what its users include.
function(cohort_installed room)
  cmake_parse_arguments(ARG "" "" "HEADERS" ${ARGN})
  set_target_properties(${room} PROPERTIES OUTPUT_NAME cohort_${room})
  target_include_directories(${room} INTERFACE $<INSTALL_INTERFACE:include/cohort>)
  target_compile_features(${room} INTERFACE $<INSTALL_INTERFACE:cxx_std_20>)
  if(COHORT_WITH_CUDA)
    target_compile_definitions(${room} INTERFACE $<INSTALL_INTERFACE:COHORT_WITH_CUDA>)
    target_link_libraries(${room} PUBLIC $<INSTALL_INTERFACE:CUDA::cudart_static>)
  endif()
  install(TARGETS ${room} EXPORT cohort ARCHIVE DESTINATION lib COMPONENT cpp)
  foreach(header ${ARG_HEADERS})
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION include/cohort/${room}/${folder} COMPONENT cpp)
  endforeach()
endfunction()

install(EXPORT cohort NAMESPACE cohort:: FILE cohort-targets.cmake DESTINATION ${COHORT_CMAKE_FOLDER} COMPONENT cpp)
set(COHORT_CUDA_FOLDER)  # of this build, for projects that name none
if(COHORT_WITH_CUDA)
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH COHORT_CUDA_FOLDER)
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/cohort-config.cmake.in ${PROJECT_BINARY_DIR}/cohort-config.cmake
  INSTALL_DESTINATION ${COHORT_CMAKE_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cohort-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cohort-config.cmake ${PROJECT_BINARY_DIR}/cohort-config-version.cmake
  DESTINATION ${COHORT_CMAKE_FOLDER} COMPONENT cpp)
