# `cpack -G DEB`: the packages troupe (program, bundled model, service, pages of help) and libtroupe-dev (headers, static
# libraries, find_package). `cmake --install` installs the same but for what belongs to Debian's system folders.
include(GNUInstallDirs)

# Manual pages and completions are what the program says of itself.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR "\" \"" emulator)
  if(emulator)
    set(emulator "\"${emulator}\"")
  endif()
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/api/packaging/help_pages.py\"
    ${emulator} \"$<TARGET_FILE:troupe>\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\" COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT program)
endif()

# Below the folders of the system. They are no part of `cmake --install`, whose prefix may be any folder.
set(debian ${PROJECT_SOURCE_DIR}/api/packaging/debian)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/packaging/changelog @ONLY CONTENT [[
troupe (@PROJECT_VERSION@-1) unstable; urgency=medium

  * Built from the sources with cpack.

 -- The Troupe authors <troupe@localhost.localdomain>  @date@
]])
find_program(GZIP gzip)
if(NOT GZIP)
  return() # not Debian
endif()
execute_process(COMMAND ${GZIP} -9nkf ${PROJECT_BINARY_DIR}/packaging/changelog COMMAND_ERROR_IS_FATAL ANY)
foreach(part program development)
  set(name troupe)
  if(part STREQUAL development)
    set(name libtroupe-dev)
  endif()
  install(FILES ${debian}/copyright DESTINATION share/doc/${name} COMPONENT debian_${part} EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_BINARY_DIR}/packaging/changelog.gz RENAME changelog.Debian.gz
    DESTINATION share/doc/${name} COMPONENT debian_${part} EXCLUDE_FROM_ALL)
  string(TOUPPER ${part} upper)
  set(CPACK_COMPONENT_${upper}_GROUP ${part})
  set(CPACK_COMPONENT_DEBIAN_${upper}_GROUP ${part})
  set(overrides ${debian}/${name}.lintian-overrides)
  if(EXISTS ${overrides})
    install(FILES ${overrides} RENAME ${name} DESTINATION share/lintian/overrides COMPONENT debian_${part} EXCLUDE_FROM_ALL)
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/configs/troupe.toml DESTINATION ../etc/troupe COMPONENT debian_program EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/configs/troupe.service ${PROJECT_SOURCE_DIR}/configs/troupe.socket DESTINATION ../lib/systemd/system
  COMPONENT debian_program EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Troupe authors <troupe@localhost.localdomain>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development debian_program debian_development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Folders are 0755 whatever the umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME troupe)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION net)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64) # and what it depends on, arm64/package.sh says
else()
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "server and command line for large language models
Troupe runs large language models on one machine: on the command line, or as
a server with OpenAI's HTTP API, Ollama's and a WebSocket. It loads
checkpoints of Hugging Face and GGUF files. A small storyteller is included.
The results of a request do not depend on what else runs.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
  ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtroupe-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "engine for large language models (development files)
Troupe runs large language models on one machine. This package has what C++
programs need to embed its engine or its server: headers, static libraries and
the files of find_package(Troupe).")
string(CONCAT CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libcaf-dev (>= 0.17.6), libcaf-dev (<< 0.17.7), libsimdjson-dev, libpcre2-dev, libutf8proc-dev, libxxhash-dev, "
  "pkg-config, libboost1.81-dev, prometheus-cpp-dev, libspdlog-dev, libssl-dev")
include(CPack)
