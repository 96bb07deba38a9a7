# Writes generated/build_info.h with the version, the commit and whether the tree was dirty, at every build (only when changed).
set(HAY_BUILD_INFO ${CMAKE_BINARY_DIR}/generated/build_info.h)
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "")
  set(dirty 0)
  execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE rc)
  if(rc EQUAL 0)
    execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes
      ERROR_QUIET)
    if(changes)
      set(dirty 1)
    endif()
  else()
    set(commit "unknown")
  endif()
  set(text "#pragma once\n#define HAY_VERSION \"${VERSION}\"\n#define HAY_COMMIT \"${commit}\"\n#define HAY_DIRTY ${dirty}\n")
  set(old "")
  if(EXISTS ${OUT})
    file(READ ${OUT} old)
  endif()
  if(NOT old STREQUAL text)
    file(WRITE ${OUT} "${text}")
  endif()
  return()
endif()
add_custom_target(hay_build_info BYPRODUCTS ${HAY_BUILD_INFO}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${HAY_BUILD_INFO} -DVERSION=${PROJECT_VERSION}
          -P ${CMAKE_SOURCE_DIR}/cmake/BuildInfo.cmake)
