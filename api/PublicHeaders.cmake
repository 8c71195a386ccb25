# The public headers: <troupe/engine.hpp>, <troupe/engine_caf.hpp>, <troupe/server.hpp> (with the server),
# <troupe/version.hpp> and the headers they include, below troupe/. They are copies whose includes begin with troupe/, so that other projects get one include folder and names such as runtime/ and
# api/ stay theirs.
set(public_include ${PROJECT_BINARY_DIR}/include)

set(entries api/embed/engine.hpp api/embed/engine_caf.hpp)
if(TROUPE_PROGRAM)
  list(APPEND entries api/catalogue/server.hpp)
endif()
# What requests ask of techniques: troupe/runtime/techniques/NAME/technique.hpp.
file(GLOB techniques RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/techniques/*/technique.hpp)
set(pending ${entries} ${techniques})
set(public_headers ${pending})
while(pending)
  list(POP_FRONT pending header)
  file(READ ${PROJECT_SOURCE_DIR}/${header} text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  string(REGEX MATCHALL "#include \"[^\"]+\"" lines "${text}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" included "${line}")
    if(NOT included IN_LIST public_headers)
      list(APPEND pending ${included})
      list(APPEND public_headers ${included})
    endif()
  endforeach()
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include \"troupe/\\1\"" text "${text}")
  file(CONFIGURE OUTPUT ${public_include}/troupe/${header} CONTENT "${text}" @ONLY)
endwhile()
foreach(header IN LISTS entries)
  get_filename_component(name ${header} NAME)
  file(CONFIGURE OUTPUT ${public_include}/troupe/${name}
    CONTENT "#pragma once\n\n#include \"troupe/${header}\"\n")
endforeach()

file(CONFIGURE OUTPUT ${public_include}/troupe/version.hpp @ONLY CONTENT [[
// The version of this library. Until 1.0, a minor version may change what programs are compiled against.
#pragma once

#define TROUPE_VERSION_MAJOR @PROJECT_VERSION_MAJOR@
#define TROUPE_VERSION_MINOR @PROJECT_VERSION_MINOR@
#define TROUPE_VERSION_PATCH @PROJECT_VERSION_PATCH@
#define TROUPE_VERSION_STRING "@PROJECT_VERSION@"
]])

target_include_directories(troupe_engine INTERFACE
  $<BUILD_INTERFACE:${public_include}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
