# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# Fails when a file of MODULE includes a header of a module that is neither itself nor in DEPS.
# NOTE: a dependency's own dependencies are usable too (base is named by nearly all).
file(GLOB_RECURSE files ${DIR}/*.h ${DIR}/*.cc)
set(modules base model io reclaim sched arbiter checkpoint traffic
  coordinator agent warden sim evaluate)
set(bad "")
foreach(file ${files})
  file(STRINGS ${file} lines REGEX "^#include \"")
  foreach(line ${lines})
    string(REGEX REPLACE "^#include \"([a-z_0-9]+)/.*" "\\1" target "${line}")
    if(target IN_LIST modules AND NOT target STREQUAL MODULE AND NOT target IN_LIST DEPS)
      string(APPEND bad "${file}: includes ${target}, which ${MODULE} does not name\n")
    endif()
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "${bad}")
endif()
