# oz_add_test(<name> <sources>... [LIBS <targets>...] [TIMEOUT <seconds>] [LABELS <labels>...]
#             [PER_TIER])
# A cmocka program linked with libounce.a, internal symbols included. It is labelled with its folder
# under tests/ (unit, kern, ...); add LABELS long for what only `scripts/check --full` should run.
# OZ_TEST_DIR is tests/ of the source tree, for fixtures; OUNCE_MODELS in the environment is its models/.
# Sources begin with #include "test.h", which brings cmocka.
# TIMEOUT is also the test's COST: ctest begins with the long ones, so that none is left alone at the end.
# PER_TIER: the program runs once for each instruction set tier of the CPU backend, as
# <folder>/<name>@<tier> with OUNCE_CPU set; tiers that the machine lacks are reported as skipped.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

set(OUNCE_TEST_ROOT ${PROJECT_SOURCE_DIR} CACHE STRING
    "where test programs look for the tree; \".\" for programs that are carried elsewhere")

set(OZ_TEST_ENVIRONMENT
    "OUNCE_MODELS=${PROJECT_SOURCE_DIR}/models"
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")

# As OZ_TIER_MAP in src/cpu/tier.h.
set(OZ_TIERS scalar avx2 avxvnni avx512 avx512bf16 amx)

function(oz_shared_test_source name)
    if(TARGET test_${name})
        return()
    endif()
    add_library(test_${name} OBJECT ${PROJECT_SOURCE_DIR}/tests/${name}.c)
    target_compile_definitions(test_${name} PRIVATE OZ_TEST_DIR="${OUNCE_TEST_ROOT}/tests")
    target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_options(test_${name} PRIVATE -ffp-contract=off -Wno-unused-parameter)
    target_link_libraries(test_${name} PRIVATE oz_flags oz_src PkgConfig::CMOCKA)
endfunction()

function(oz_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "PER_TIER" "TIMEOUT" "LIBS;LABELS")
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
    string(REPLACE "/" ";" folder "${folder}")
    list(GET folder 0 folder)
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 60)
    endif()
    if(OUNCE_SANITIZE)
        math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
    endif()

    set(sources "")
    foreach(source IN LISTS arg_UNPARSED_ARGUMENTS)
        if(source MATCHES "^[.][.]/([a-z_]+)[.]c$") # what tests share, compiled once
            oz_shared_test_source(${CMAKE_MATCH_1})
            list(APPEND sources $<TARGET_OBJECTS:test_${CMAKE_MATCH_1}>)
        else()
            list(APPEND sources ${source})
        endif()
    endforeach()
    add_executable(${name}_test ${sources})
    target_compile_definitions(${name}_test PRIVATE OZ_TEST_DIR="${OUNCE_TEST_ROOT}/tests")
    target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    # cmocka hands every test a state pointer that few of them read.
    target_compile_options(${name}_test PRIVATE -ffp-contract=off -Wno-unused-parameter)
    target_link_libraries(${name}_test PRIVATE oz_flags oz_src ounce PkgConfig::CMOCKA ${arg_LIBS})

    if(NOT arg_PER_TIER)
        add_test(NAME ${folder}/${name} COMMAND ${name}_test)
        set_tests_properties(${folder}/${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT}
            LABELS "${folder};${arg_LABELS}" ENVIRONMENT "${OZ_TEST_ENVIRONMENT}")
        return()
    endif()
    target_sources(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/tier_guard.c)
    foreach(tier IN LISTS OZ_TIERS)
        set(test ${folder}/${name}@${tier})
        add_test(NAME ${test} COMMAND ${name}_test)
        set_tests_properties(${test} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} SKIP_RETURN_CODE 77
            LABELS "${folder};tier_${tier};${arg_LABELS}"
            ENVIRONMENT "${OZ_TEST_ENVIRONMENT};OUNCE_CPU=${tier}")
        if(OUNCE_SANITIZE AND tier STREQUAL "avxvnni") # as avx2: it has no kernels of its own yet
            set_property(TEST ${test} APPEND PROPERTY LABELS long)
        endif()
    endforeach()
endfunction()

# oz_add_script_test(<name> <command>...): a shell test that exits 0 (passed), 77 (skipped) or else.
function(oz_add_script_test name)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300 COST 300 SKIP_RETURN_CODE 77)
endfunction()
