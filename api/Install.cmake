# Installs the public headers, the files of find_package(Troupe), the configurations and the bundled model. Libraries and
# the program are installed where they are defined.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Troupe)
configure_package_config_file(TroupeConfig.cmake.in TroupeConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(TroupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TroupeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TroupeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/actors/FindCAF.cmake DESTINATION ${package})
install(EXPORT TroupeTargets NAMESPACE Troupe:: DESTINATION ${package})
# For programs that build without CMake. Libraries stand before those that they need.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(engine_libraries "-ltroupe_engine -ltroupe_actors -ltroupe_runtime -ltroupe_kernels")
if(TARGET troupe_cuda_plugin)
  string(APPEND engine_libraries " -Wl,--dynamic-list=\${libdir}/troupe/troupe-cuda.list")
endif()
set(pkg_config_files troupe)
if(TROUPE_PROGRAM)
  list(APPEND pkg_config_files troupe-server)
endif()
foreach(name IN LISTS pkg_config_files)
  configure_file(${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
foreach(header IN LISTS public_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${public_include}/troupe/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe/${folder})
endforeach()
foreach(header IN LISTS entries)
  get_filename_component(name ${header} NAME)
  install(FILES ${public_include}/troupe/${name} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe)
endforeach()
install(FILES ${public_include}/troupe/version.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe)

if(TROUPE_PROGRAM)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe COMPONENT program)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/storyteller/model/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe/storyteller COMPONENT program)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/storyteller/draft/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe/storyteller-draft COMPONENT program)
endif()
