# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# cmake -DSOURCE=web -DBUILT=FOLDER -DOUT=FILE.cc -DNODE=… -DNPM=… -DMAY_FAIL=ON|OFF -P build.cmake
# Builds the dashboard in BUILT and embeds it as OUT. Packages are fetched when package-lock.json has changed, from
# npm's own cache before the registry; no package's script runs. MAY_FAIL: who cannot reach the registry gets a
# coordinator without the dashboard, and is told; the next build tries again.
include(${CMAKE_CURRENT_LIST_DIR}/without.cmake)

function(run what)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${BUILT} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the dashboard: ${what} failed (${status})")
  endif()
endfunction()

# What was deleted must go, too.
file(REMOVE_RECURSE ${BUILT}/src ${BUILT}/dist)
file(COPY ${SOURCE}/src ${SOURCE}/embed.mjs ${SOURCE}/index.html ${SOURCE}/tsconfig.json ${SOURCE}/vite.config.ts
  DESTINATION ${BUILT})
file(SHA256 ${SOURCE}/package-lock.json wanted)
set(have "")
if(EXISTS ${BUILT}/packages.sha256)
  file(READ ${BUILT}/packages.sha256 have)
endif()
if(NOT have STREQUAL wanted)
  file(REMOVE ${BUILT}/packages.sha256)
  file(COPY ${SOURCE}/package.json ${SOURCE}/package-lock.json ${SOURCE}/.npmrc DESTINATION ${BUILT})
  execute_process(
    COMMAND ${NPM} ci --ignore-scripts --prefer-offline --loglevel error --fetch-retry-mintimeout 2000
    WORKING_DIRECTORY ${BUILT} RESULT_VARIABLE status OUTPUT_QUIET)
  if(NOT status EQUAL 0)
    if(NOT MAY_FAIL)
      message(FATAL_ERROR "the dashboard: its packages cannot be had; -DRN_WEB=OFF builds without it")
    endif()
    message(WARNING "the dashboard's packages cannot be had: reclaim-coordinator is built without it (RN_WEB)")
    rn_write_without(${OUT})
    file(REMOVE ${BUILT}/dashboard.stamp)
    return()
  endif()
  file(WRITE ${BUILT}/packages.sha256 ${wanted})
endif()
run("its types" ${NODE} node_modules/typescript/bin/tsc --noEmit)
run("its bundle" ${NODE} node_modules/vite/bin/vite.js build --logLevel warn)
run("embedding it" ${NODE} embed.mjs dist ${OUT})
file(TOUCH ${BUILT}/dashboard.stamp)
