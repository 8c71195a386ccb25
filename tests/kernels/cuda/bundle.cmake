# Makes the folder TO of everything that a machine with a GPU needs to test and measure: PROGRAMS (separated by `|`),
# stripped by STRIP, the PLUGIN of GPUs, the shared libraries that they need besides the C library, scripts, and data, from the project in
# SOURCE. With ARCHIVE, also packs it, and fails if that file has more than MOST bytes, or if there is more than one of
# ARCHITECTURES (separated by `|`).
if(ARCHIVE AND ARCHITECTURES MATCHES "[|]|^all|^native$")
  message(FATAL_ERROR "a bundle is for one architecture, such as -DCMAKE_CUDA_ARCHITECTURES=90-real, not ${ARCHITECTURES}")
endif()
string(REPLACE "|" ";" programs "${PROGRAMS}")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} RESOLVED_DEPENDENCIES_VAR libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^libc\\.so" "^libm\\.so" "^libdl\\.so" "^librt\\.so" "^libpthread\\.so")
file(REMOVE_RECURSE ${TO})
file(COPY ${programs} ${PLUGIN} ${SOURCE}/tests/cuda/first_light.sh ${SOURCE}/tests/cuda/serve_check.py
  ${SOURCE}/tests/bench/cuda_sdpa.py ${SOURCE}/tests/cuda/transformers_decode.py DESTINATION ${TO})
file(COPY ${libraries} DESTINATION ${TO} FOLLOW_SYMLINK_CHAIN)
file(COPY ${SOURCE}/tests/data/golden DESTINATION ${TO}/tests/data)
file(COPY ${SOURCE}/examples/storyteller/model/ DESTINATION ${TO}/share/troupe/storyteller)
foreach(file ${programs} ${PLUGIN} ${libraries})
  get_filename_component(name ${file} REALPATH)
  get_filename_component(name ${name} NAME)
  execute_process(COMMAND ${STRIP} ${TO}/${name} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(ARCHIVE)
  get_filename_component(parent ${TO} DIRECTORY)
  get_filename_component(folder ${TO} NAME)
  # Every program has the same kernels: a large dictionary keeps them once.
  execute_process(COMMAND tar -C ${parent} -c --use-compress-program "xz --lzma2=preset=6,dict=64MiB" -f ${ARCHIVE} ${folder}
    COMMAND_ERROR_IS_FATAL ANY)
  file(SIZE ${ARCHIVE} bytes)
  message(STATUS "${ARCHIVE}: ${bytes} bytes")
  if(bytes GREATER MOST)
    message(FATAL_ERROR "${ARCHIVE} has ${bytes} bytes, more than ${MOST}")
  endif()
endif()
