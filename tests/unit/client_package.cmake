# What programs outside this tree see of libgemmd: the header alone, the symbols, the installed
# package.
find_program(GEMMD_CXX NAMES c++ g++ clang++)
set(header ${PROJECT_SOURCE_DIR}/client/gemmd.h)
set(user ${CMAKE_CURRENT_SOURCE_DIR}/client_header.c)
set(strict -I${PROJECT_SOURCE_DIR}/client -pedantic-errors -Wall -Wextra -Werror -fsyntax-only)

add_test(NAME unit.client_header_c11
    COMMAND ${CMAKE_C_COMPILER} -x c -std=c11 ${strict} ${user})
set(client_tests unit.client_header_c11)
# A sanitized library needs its runtime in the program, and adds symbols of its own.
if(NOT GEMMD_SANITIZE)
    add_test(NAME unit.client_exports
        COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/client_exports.sh ${header}
            $<TARGET_FILE:gemmd_shared>)
    add_test(NAME unit.client_package
        COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/client_package.sh ${PROJECT_BINARY_DIR} ${user})
    list(APPEND client_tests unit.client_exports unit.client_package)
endif()
if(GEMMD_CXX)
    # Designated initialisers, as in the header's _INIT macros, came with C++20.
    add_test(NAME unit.client_header_cxx
        COMMAND ${GEMMD_CXX} -x c++ -std=c++20 ${strict} ${user})
    add_test(NAME unit.client_header_cxx11
        COMMAND ${GEMMD_CXX} -x c++ -std=c++11 ${strict} ${header})
    list(APPEND client_tests unit.client_header_cxx unit.client_header_cxx11)
endif()
set_tests_properties(${client_tests} PROPERTIES LABELS unit TIMEOUT 120)
