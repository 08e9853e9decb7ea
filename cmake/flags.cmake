# Compiler settings, in one place. Two interface targets carry them:
#   oz_flags    standard, feature macro, warnings, sanitizers: everything we compile
#   oz_product  what the shipped code obeys on top (banned functions, exact floating point): src/ and apps/
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Assertions stay on except in Release.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "build type" FORCE)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
# Half of what a kernel takes to compile is debug information, and two thirds under sanitizers with what
# -O2 makes of their code. A check needs function names and lines. Device code: src/cuda/.
if(OUNCE_QUICK)
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
    if(OUNCE_SANITIZE)
        set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
    endif()
endif()
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")

set(OZ_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wundef -Wcast-qual -Wformat=2 -Wimplicit-fallthrough)
set(OZ_DEFINITIONS _GNU_SOURCE)

add_library(oz_flags INTERFACE)
target_compile_definitions(oz_flags INTERFACE ${OZ_DEFINITIONS})
# __FILE__ is relative to the tree, so that messages and binaries do not name the build machine.
target_compile_options(oz_flags INTERFACE ${OZ_WARNINGS} $<$<BOOL:${OUNCE_WERROR}>:-Werror>
                       -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(OUNCE_SANITIZE)
    target_compile_options(oz_flags INTERFACE -fsanitize=${OUNCE_SANITIZE}
                           -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${OUNCE_SANITIZE})
endif()

if(OUNCE_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "OUNCE_FUZZ=ON needs clang (and libclang-rt-dev): use preset fuzz, or "
                            "-DCMAKE_C_COMPILER=clang.")
    endif()
    target_compile_options(oz_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

add_library(oz_product INTERFACE)
target_compile_options(oz_product INTERFACE -ffp-contract=off
                       -include ${PROJECT_SOURCE_DIR}/src/base/banned.h)
target_link_libraries(oz_product INTERFACE oz_flags)
