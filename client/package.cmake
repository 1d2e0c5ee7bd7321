# What `cmake --install` lays down for programs that use the library: header, shared library,
# pkg-config file, CMake package gemmd::gemmd.
include(CMakePackageConfigHelpers)

set(GEMMD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gemmd)

# Relative to the file itself, so that the tree can be moved.
file(RELATIVE_PATH GEMMD_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" GEMMD_PC_UP "${GEMMD_PC_UP}")
set(GEMMD_PC_PREFIX "\${pcfiledir}/${GEMMD_PC_UP}")
configure_file(gemmd.pc.in gemmd.pc @ONLY)

configure_package_config_file(gemmdConfig.cmake.in gemmdConfig.cmake
    INSTALL_DESTINATION ${GEMMD_CMAKE_DIR})
write_basic_package_version_file(gemmdConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS gemmd_shared EXPORT gemmdTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client
    PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT client)
install(EXPORT gemmdTargets NAMESPACE gemmd:: DESTINATION ${GEMMD_CMAKE_DIR}
    COMPONENT client)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gemmd.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT client)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gemmdConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/gemmdConfigVersion.cmake
    DESTINATION ${GEMMD_CMAKE_DIR} COMPONENT client)
