# gemmd_python_with(<result> <module>...): a Python that can import them all, empty when there is
# none: $ENV{GEMMD_PYTHON}, CMake's choice, the distribution's. The first two may be environments
# that lack what apt installed for the third.
function(gemmd_python_with result)
    find_package(Python3 COMPONENTS Interpreter QUIET)
    list(JOIN ARGN ", " modules)
    set(found "")
    foreach(python IN ITEMS $ENV{GEMMD_PYTHON} ${Python3_EXECUTABLE} /usr/bin/python3)
        execute_process(
            COMMAND ${python} -c "import sys, ${modules}; sys.exit(sys.version_info < (3, 10))"
            RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
        if(status EQUAL 0)
            set(found ${python})
            break()
        endif()
    endforeach()
    set(${result} "${found}" PARENT_SCOPE)
endfunction()
