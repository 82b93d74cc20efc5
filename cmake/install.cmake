# The component server installs coordinator and worker, and client the command line. The component dev installs the
# public proto and the C++ client library. Its package is hilbert_ring:
#
#   find_package(hilbert_ring REQUIRED)
#   target_link_libraries(mine PRIVATE hilbert_ring::client)
#
# Headers lie below include/hilbert_ring, a path that only the target adds, so that another program's includes do not
# find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HILBERT_RING_HEADERS ${CMAKE_INSTALL_INCLUDEDIR}/hilbert_ring)
set(HILBERT_RING_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/hilbert_ring)

install(TARGETS hilbert-ring-coordinator hilbert-ring-worker COMPONENT server)
install(TARGETS hilbert-ring COMPONENT client)

# The client and its static libraries, which shared libraries may link.
set(libraries client model_files wire proto plan order reference spec base)
foreach(library ${libraries})
  set_target_properties(hilbert_ring_${library} PROPERTIES EXPORT_NAME ${library} POSITION_INDEPENDENT_CODE ON)
  set_property(TARGET hilbert_ring_${library} APPEND PROPERTY
    INTERFACE_INCLUDE_DIRECTORIES $<INSTALL_INTERFACE:${HILBERT_RING_HEADERS}>)
endforeach()
target_compile_features(hilbert_ring_client PUBLIC cxx_std_20)
add_library(hilbert_ring::client ALIAS hilbert_ring_client)  # for add_subdirectory
list(TRANSFORM libraries PREPEND hilbert_ring_)
install(TARGETS ${libraries} EXPORT hilbert_ring
  ARCHIVE COMPONENT dev
  FILE_SET HEADERS DESTINATION ${HILBERT_RING_HEADERS} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/proto/hilbert_ring/v1/attention.pb.h
  ${PROJECT_BINARY_DIR}/proto/hilbert_ring/v1/attention.grpc.pb.h
  ${PROJECT_BINARY_DIR}/proto/hilbert_ring/v1/encoder.pb.h
  ${PROJECT_BINARY_DIR}/proto/hilbert_ring/v1/encoder.grpc.pb.h
  DESTINATION ${HILBERT_RING_HEADERS}/hilbert_ring/v1 COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/proto/hilbert_ring/v1/attention.proto
  ${PROJECT_SOURCE_DIR}/proto/hilbert_ring/v1/encoder.proto
  DESTINATION ${CMAKE_INSTALL_DATADIR}/hilbert_ring/proto/hilbert_ring/v1 COMPONENT dev)

install(EXPORT hilbert_ring FILE hilbert_ring-targets.cmake NAMESPACE hilbert_ring::
  DESTINATION ${HILBERT_RING_PACKAGE} COMPONENT dev)
configure_package_config_file(cmake/hilbert_ring-config.cmake.in
  ${PROJECT_BINARY_DIR}/hilbert_ring-config.cmake INSTALL_DESTINATION ${HILBERT_RING_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hilbert_ring-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hilbert_ring-config.cmake
  ${PROJECT_BINARY_DIR}/hilbert_ring-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/modules/FindISAL.cmake
  DESTINATION ${HILBERT_RING_PACKAGE} COMPONENT dev)

foreach(component server client dev)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/deploy/debian/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/hilbert-ring-${component} COMPONENT ${component})
endforeach()

if(HILBERT_RING_PACKAGES)
  include(cmake/packages.cmake)
endif()
