# make install: library, headers, program (apps/cli), models as data, ounce.pc, find_package(ounce).
include(CMakePackageConfigHelpers)
set(OZ_INSTALL_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/ounce)
set(OZ_INSTALL_DATA ${CMAKE_INSTALL_DATADIR}/ounce)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ounce DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(TARGETS ounce EXPORT ounce ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(OUNCE_SHARED)
    install(TARGETS ounce_shared EXPORT ounce LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/models/emoji)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/emoji DESTINATION ${OZ_INSTALL_DATA}/models
            PATTERN "train" EXCLUDE)
    # The program in the build tree finds the models as the installed one does: beside it.
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/ounce)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models ${PROJECT_BINARY_DIR}/share/ounce/models SYMBOLIC)
endif()

# The man page and the completions are made of what docs/options says.
set(OZ_MANUAL_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/manual ${PROJECT_SOURCE_DIR}/apps/cli/main.c)
file(GLOB OZ_OPTION_PAGES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/options/*.md)
foreach(pair man:ounce.1:man/man1 bash:ounce:bash-completion/completions zsh:_ounce:zsh/site-functions)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 kind)
    list(GET pair 1 name)
    list(GET pair 2 folder)
    set(output ${PROJECT_BINARY_DIR}/manual/${kind}/${name})
    add_custom_command(OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/manual/${kind}
        COMMAND ${PROJECT_SOURCE_DIR}/scripts/manual ${kind} > ${output}
        DEPENDS ${OZ_MANUAL_DEPENDS} ${OZ_OPTION_PAGES} VERBATIM)
    list(APPEND OZ_MANUAL ${output})
    install(FILES ${output} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
endforeach()
add_custom_target(manual ALL DEPENDS ${OZ_MANUAL})

# pkg-config. With only the static library installed, plain `--libs` must name its dependencies too.
list(JOIN OZ_PC_MODULES " " OZ_PC_REQUIRES)
if(OUNCE_SHARED)
    set(OZ_PC_PRIVATE ".private")
    set(OZ_PC_LIBS "-L\${libdir} -lounce\nLibs.private: -pthread -lm")
else()
    set(OZ_PC_PRIVATE "")
    set(OZ_PC_LIBS "-L\${libdir} -lounce -pthread -lm")
endif()
file(RELATIVE_PATH OZ_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" OZ_PC_PREFIX ${OZ_PC_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/ounce.pc.in ${PROJECT_BINARY_DIR}/ounce.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ounce.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# find_package(ounce) gives ounce::ounce (static) and, where built, ounce::ounce_shared.
set(OZ_CONFIG_DEPENDENCIES "")
foreach(module IN LISTS OZ_PC_MODULES)
    string(MAKE_C_IDENTIFIER "OUNCE_${module}" id)
    string(APPEND OZ_CONFIG_DEPENDENCIES "pkg_check_modules(${id} REQUIRED IMPORTED_TARGET ${module})\n"
           "target_link_libraries(ounce::ounce INTERFACE PkgConfig::${id})\n")
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ounce-config.cmake.in
    ${PROJECT_BINARY_DIR}/ounce-config.cmake INSTALL_DESTINATION ${OZ_INSTALL_CMAKE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ounce-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(EXPORT ounce NAMESPACE ounce:: FILE ounce-targets.cmake DESTINATION ${OZ_INSTALL_CMAKE})
install(FILES ${PROJECT_BINARY_DIR}/ounce-config.cmake
              ${PROJECT_BINARY_DIR}/ounce-config-version.cmake DESTINATION ${OZ_INSTALL_CMAKE})
