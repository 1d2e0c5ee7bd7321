# `bundle` (complete) and `bundle-gpu` (without NVRTC, for machines with a CUDA toolkit): archives
# that run on another x86-64 Linux with glibc 2.36 or later and nothing installed.
foreach(kind IN ITEMS bundle bundle-gpu)
    add_custom_target(${kind}
        COMMAND ${CMAKE_SOURCE_DIR}/deploy/bundle ${kind} ${CMAKE_BINARY_DIR}
            ${CMAKE_BINARY_DIR}/gemmd-${kind}.tar.xz
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
        COMMENT "Packing ${CMAKE_BINARY_DIR}/gemmd-${kind}.tar.xz"
        USES_TERMINAL VERBATIM)
    add_dependencies(${kind} all_programs)
endforeach()

# Everything a bundle packs; `all` builds it too.
add_custom_target(all_programs)

function(gemmd_collect directory)
    get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
        get_target_property(type ${target} TYPE)
        if(type STREQUAL "EXECUTABLE" OR type STREQUAL "SHARED_LIBRARY")
            add_dependencies(all_programs ${target})
        endif()
    endforeach()
    get_property(folders DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
    foreach(folder IN LISTS folders)
        gemmd_collect(${folder})
    endforeach()
endfunction()

gemmd_collect(${CMAKE_SOURCE_DIR})

# Systemd and friends are installed where the distribution looks for them. The service names the
# daemon's path, which is known when it is installed (--prefix).
install(CODE "
    cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX NORMALIZE OUTPUT_VARIABLE prefix)
    cmake_path(APPEND prefix \"${CMAKE_INSTALL_SBINDIR}\" OUTPUT_VARIABLE GEMMD_SBINDIR)
    configure_file(\"${CMAKE_SOURCE_DIR}/deploy/gemmd.service.in\"
        \"${CMAKE_BINARY_DIR}/gemmd.service\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/gemmd.service ${CMAKE_SOURCE_DIR}/deploy/gemmd.socket
    DESTINATION lib/systemd/system)
install(FILES ${CMAKE_SOURCE_DIR}/deploy/sysusers.conf DESTINATION lib/sysusers.d
    RENAME gemmd.conf)
# An example: what lies in /etc is the operator's.
install(FILES ${CMAKE_SOURCE_DIR}/deploy/gemmd.conf DESTINATION ${CMAKE_INSTALL_DOCDIR})
