# A Debian package for each component, by CPack: hilbert-ring-server, hilbert-ring-client, hilbert-ring-dev.
set(systemd ${PROJECT_SOURCE_DIR}/deploy/systemd)
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
install(FILES ${systemd}/hilbert-ring-coordinator.service ${systemd}/hilbert-ring-worker@.service
  DESTINATION /lib/systemd/system COMPONENT server)
install(FILES ${systemd}/coordinator.conf ${systemd}/worker.conf
  DESTINATION /etc/hilbert-ring COMPONENT server)

file(WRITE ${PROJECT_BINARY_DIR}/bash-completion
  "# shellcheck shell=bash\nsource <(hilbert-ring completion bash)\n")
install(FILES ${PROJECT_BINARY_DIR}/bash-completion
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME hilbert-ring COMPONENT client)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hilbert-ring)
set(CPACK_PACKAGE_VENDOR "Hilbert Ring")
set(CPACK_PACKAGE_CONTACT "The Hilbert Ring authors <authors@hilbert-ring.example>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL server client dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_SERVER_PACKAGE_NAME hilbert-ring-server)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION science)
set(CPACK_DEBIAN_SERVER_DESCRIPTION "attention over long sequences: coordinator and worker
A coordinator shards a sequence over worker processes, which run ring dilated
Hilbert attention on their shards. With units for systemd.")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
  ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS hilbert-ring-client)

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME hilbert-ring-client)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION science)
set(CPACK_DEBIAN_CLIENT_DESCRIPTION "attention over long sequences: command line
hilbert-ring submits jobs of .npy files to a Hilbert Ring service, plans and
verifies them, and shows the service's workers and jobs.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME hilbert-ring-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_DESCRIPTION "attention over long sequences: C++ client library
Headers, static libraries and the CMake package hilbert_ring, for programs
that submit jobs to a Hilbert Ring service.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "libabsl-dev, libgrpc++-dev, libisal-dev, libprotobuf-dev, libssl-dev, protobuf-compiler-grpc")
include(CPack)
