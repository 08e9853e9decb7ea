# Dependencies, each found by pkg-config and used behind one door file (tools/lint/layers).
#   oz_dependency(<name> <pkg-config module>)
# adds the module to what libounce links (oz_deps) and to ounce.pc and the CMake package.
find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(oz_deps INTERFACE)
target_link_libraries(oz_deps INTERFACE Threads::Threads m)
set(OZ_PC_MODULES "")

function(oz_dependency name module)
    pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
    set(OZ_PC_MODULES ${OZ_PC_MODULES} ${module} PARENT_SCOPE)
    if(NOT OUNCE_STATIC_DEPS)
        target_link_libraries(oz_deps INTERFACE PkgConfig::${name})
        return()
    endif()
    target_include_directories(oz_deps SYSTEM INTERFACE ${${name}_STATIC_INCLUDE_DIRS})
    foreach(lib IN LISTS ${name}_STATIC_LIBRARIES)
        if(lib MATCHES "^(c|m|dl|pthread|rt)$")
            target_link_libraries(oz_deps INTERFACE ${lib})
        else()
            find_library(OZ_STATIC_${lib} NAMES lib${lib}.a HINTS ${${name}_STATIC_LIBRARY_DIRS}
                         REQUIRED)
            mark_as_advanced(OZ_STATIC_${lib})
            target_link_libraries(oz_deps INTERFACE ${OZ_STATIC_${lib}})
        endif()
    endforeach()
endfunction()

oz_dependency(PCRE2 libpcre2-8)
oz_dependency(UTF8PROC libutf8proc)
oz_dependency(PNG libpng)
