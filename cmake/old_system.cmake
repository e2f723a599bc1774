# Programs and modules that run on older systems than the one that builds them: launch/wheel.sh.
#
# They are compiled with the headers and the compiler of this system, and linked with the libraries in COHORT_OLD_SYSTEM,
# with the compiler's libstdc++ in them. A symbol that these libraries lack ends the link; old_glibc.cc has those few.
set(COHORT_OLD_SYSTEM "" CACHE PATH "A folder with the C library and libgcc of an older system, to link with; empty: this system's")

function(cohort_for_old_system target)
  if(COHORT_OLD_SYSTEM)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/old_glibc.cc)
    set(libraries ${COHORT_OLD_SYSTEM}/usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
    # The compiler would find its own system's first, and the start of programs with them. Symbols of static libraries are
    # not for others: PyTorch loads a libstdc++. An older C library has the last three apart.
    target_link_options(${target} PRIVATE --sysroot=${COHORT_OLD_SYSTEM} -B${libraries} -L${libraries}
      -L${COHORT_OLD_SYSTEM}/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu -static-libstdc++ LINKER:--exclude-libs,ALL
      LINKER:--push-state,--no-as-needed,-lpthread,-ldl,-lrt,--pop-state)
  endif()
endfunction()
