# oz_isa_library(<tier> "<flags>" <files>...)
# One object library per instruction set tier, so that no instruction leaks below its tier.
# Its objects join libounce, and OZ_HAVE_<TIER>=1 is defined for all of src/. When the compiler does
# not know the flags the tier is left out, with a line that says so. Paths are relative to the caller.
include(CheckCCompilerFlag)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    set(OZ_ARCH_X86 1)
else()
    set(OZ_ARCH_X86 0)
endif()

function(oz_isa_library tier flags)
    string(TOUPPER ${tier} upper)
    check_c_compiler_flag("${flags}" OZ_COMPILES_${upper})
    if(NOT OZ_COMPILES_${upper})
        message(STATUS "tier ${tier} left out: ${CMAKE_C_COMPILER} does not take ${flags}")
        return()
    endif()
    separate_arguments(options UNIX_COMMAND "${flags}")
    add_library(oz_isa_${tier} OBJECT ${ARGN})
    target_compile_options(oz_isa_${tier} PRIVATE ${options})
    if(OUNCE_QUICK AND OUNCE_SANITIZE)
        target_compile_options(oz_isa_${tier} PRIVATE -O1)
    endif()
    if(OUNCE_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # GCC's stand-in for the stack does not align vectors of 64 bytes.
        target_compile_options(oz_isa_${tier} PRIVATE --param=asan-use-after-return=0)
    endif()
    target_link_libraries(oz_isa_${tier} PRIVATE oz_product oz_src)
    set_property(GLOBAL APPEND PROPERTY OZ_ISA_LIBRARIES oz_isa_${tier})
    target_compile_definitions(oz_src INTERFACE OZ_HAVE_${upper}=1)
endfunction()
