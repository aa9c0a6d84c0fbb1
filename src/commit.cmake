# Writes HEADER with PUNICA_COMMIT, the commit of the working tree in SOURCE ("" outside of git), if it says anything else.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=7 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(text "#define PUNICA_COMMIT \"${commit}\"\n")
if(EXISTS ${HEADER})
    file(READ ${HEADER} old)
endif()
if(NOT "${old}" STREQUAL "${text}")
    file(WRITE ${HEADER} "${text}")
endif()
