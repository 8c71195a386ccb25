# Copies PROGRAM, and the shared libraries that it needs besides the C library, to the folder TO.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} RESOLVED_DEPENDENCIES_VAR libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^libc\\.so" "^libm\\.so" "^libdl\\.so" "^librt\\.so" "^libpthread\\.so")
file(COPY ${PROGRAM} DESTINATION ${TO})
file(COPY ${libraries} DESTINATION ${TO} FOLLOW_SYMLINK_CHAIN)
