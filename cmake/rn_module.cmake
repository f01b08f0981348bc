# SPDX-License-Identifier: Apache-2.0
# rn_module(NAME DEPS base model LIBS OpenSSL::Crypto SOURCES a.cc HEADERS a.h TESTS a_test.cc)
#
# Makes library reclaimnet_NAME (alias reclaimnet::NAME), test program NAME_test, link test NAME_link_test (the whole
# library in an empty main with nothing but its declared dependencies) and NAME_headers (every header compiles alone).
# A dependency on a module of the same or a higher layer is a configuration error (ARCHITECTURE.md).

set(RN_LAYER_base 0)
foreach(m model io)
  set(RN_LAYER_${m} 1)
endforeach()
foreach(m reclaim sched arbiter checkpoint traffic)
  set(RN_LAYER_${m} 2)
endforeach()
foreach(m coordinator agent warden)
  set(RN_LAYER_${m} 3)
endforeach()
foreach(m sim evaluate)
  set(RN_LAYER_${m} 4)
endforeach()

# Where the tests' processor time goes: RN_LIBRARY_OPTIMIZE is for these. The daemons' modules are most of the code, and
# their tests mostly wait.
set(RN_COMPUTING base model reclaim sched arbiter checkpoint)

# The files that hold a known bug: reclaim-sim-planted compiles them again (apps/reclaim-sim).
set(RN_PLANTED_FILES
  agent/core_contract.cc
  agent/core.cc agent/core_gang.cc agent/core_orders.cc agent/core_reclaim.cc agent/core_start.cc agent/core_stay.cc
  agent/core_stop.cc agent/local_work.cc
  arbiter/arbiter.cc base/planted.cc
  checkpoint/chunk_store.cc checkpoint/chunk_store_gc.cc checkpoint/snapshot.cc checkpoint/transfer_server.cc
  coordinator/core.cc coordinator/core_commands.cc coordinator/core_copies.cc coordinator/core_evacuation.cc
  coordinator/core_evacuation_site.cc coordinator/core_gang_gathering.cc coordinator/core_gang_placement.cc
  coordinator/core_garbage.cc
  coordinator/core_job_ends.cc coordinator/core_job_life.cc
  coordinator/core_placement.cc coordinator/core_quota.cc coordinator/core_state.cc
  coordinator/core_usage.cc coordinator/core_waiting.cc coordinator/states.cc
  coordinator/core_gang_members.cc coordinator/core_gang_sets.cc
  sim/agent_work.cc sim/coordinator_host.cc sim/warden_host.cc
  warden/core_announced.cc warden/core_guests.cc warden/core_reclaims.cc)

# Presets with RN_WHOLE=N compile up to N files of a module as one: what a file costs is its headers. CMake's own unity
# builds name their files by absolute paths, so that a second clone would find nothing in the compiler's cache. Files
# with planted bugs get objects of their own, because the linker must be able to leave the clean ones out of
# reclaim-sim-planted.
function(rn_whole target folder)
  if(NOT RN_WHOLE)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^[a-z0-9_]+[.]cc$")
  set_source_files_properties(${sources} PROPERTIES HEADER_FILE_ONLY ON)
  set(taken 0)
  set(groups)
  foreach(source ${sources})
    if("${folder}/${source}" IN_LIST RN_PLANTED_FILES)
      set(group planted)
    else()
      math(EXPR group "${taken} / ${RN_WHOLE}")
      math(EXPR taken "${taken} + 1")
    endif()
    list(APPEND groups ${group})
    string(APPEND content_${group} "#include \"${folder}/${source}\" // NOLINT\n")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group ${groups})
    set(whole ${CMAKE_CURRENT_BINARY_DIR}/whole_${target}_${group}.cc)
    file(CONFIGURE OUTPUT ${whole} CONTENT "${content_${group}}" @ONLY)
    target_sources(${target} PRIVATE ${whole})
  endforeach()
endfunction()

add_library(rn_flags INTERFACE)
target_compile_options(rn_flags INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers # designated initializers with defaults are our builders
  -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough -Wswitch-enum
  $<$<CXX_COMPILER_ID:GNU>:-Wno-dangling-pointer> # NOTE(g++ 12): false positives in std::function
  # In a build with RN_WHOLE every file is an included one, where g++ expects no types without linkage in members.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${RN_WHOLE}>>:-Wno-subobject-linkage>
  $<$<BOOL:${RN_WERROR}>:-Werror>)
if(RN_SANITIZE)
  target_compile_options(rn_flags INTERFACE -fsanitize=${RN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(rn_flags INTERFACE -fsanitize=${RN_SANITIZE})
  # A fifth of what the sanitizers cost in the compiler: each access through a pointer is checked twice. A null pointer
  # is seen anyway, by its fault; alignment counts where bytes are decoded, which ends with layer 2.
  target_compile_options(rn_flags INTERFACE
    $<$<BOOL:$<TARGET_PROPERTY:RN_DECODES_NOTHING>>:-fno-sanitize=null$<COMMA>vptr$<COMMA>alignment>)
endif()
# A program loads only the libraries that it calls: without it the warden would map libcurl's 28 (measured: 4 MB).
target_link_options(rn_flags INTERFACE LINKER:--as-needed)
target_include_directories(rn_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)

function(rn_module name)
  cmake_parse_arguments(M "" "" "DEPS;LIBS;SOURCES;HEADERS;TESTS;TEST_LIBS" ${ARGN})
  if(NOT DEFINED RN_LAYER_${name})
    message(FATAL_ERROR "module ${name} has no layer: add it to cmake/rn_module.cmake")
  endif()
  set(deps)
  foreach(dep ${M_DEPS})
    # NOTE: agent and warden share the layer and nothing else; sim and evaluate alone may name all of layer 3.
    if(NOT RN_LAYER_${dep} LESS RN_LAYER_${name})
      message(FATAL_ERROR
        "module ${name} (layer ${RN_LAYER_${name}}) must not depend on ${dep} (layer ${RN_LAYER_${dep}})")
    endif()
    list(APPEND deps reclaimnet_${dep})
  endforeach()

  add_library(reclaimnet_${name} STATIC ${M_SOURCES})
  add_library(reclaimnet::${name} ALIAS reclaimnet_${name})
  target_link_libraries(reclaimnet_${name} PUBLIC rn_flags ${deps} ${M_LIBS})
  set_target_properties(reclaimnet_${name} PROPERTIES LINKER_LANGUAGE CXX)
  rn_whole(reclaimnet_${name} ${name})
  if(RN_LAYER_${name} GREATER 2)
    set_target_properties(reclaimnet_${name} PROPERTIES RN_DECODES_NOTHING ON)
  endif()
  if(name IN_LIST RN_COMPUTING)
    target_compile_options(reclaimnet_${name} PRIVATE ${RN_LIBRARY_OPTIMIZE})
  endif()
  if(RN_FUZZ AND RN_LAYER_${name} LESS_EQUAL 2) # the decoders and what they call; the daemons above decode nothing
    target_compile_options(reclaimnet_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()

  # Link test: whole archive, declared dependencies only.
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_link_main.cc "int main() { return 0; }\n")
  add_executable(${name}_link_test ${CMAKE_CURRENT_BINARY_DIR}/${name}_link_main.cc)
  target_link_libraries(${name}_link_test PRIVATE rn_flags
    -Wl,--whole-archive $<TARGET_FILE:reclaimnet_${name}> -Wl,--no-whole-archive ${deps} ${M_LIBS})
  add_dependencies(${name}_link_test reclaimnet_${name})
  add_test(NAME ${name}.link COMMAND ${name}_link_test)

  # Include test: a module's files include only modules that it names.
  add_test(NAME ${name}.includes
    COMMAND ${CMAKE_COMMAND} -DMODULE=${name} "-DDEPS=${M_DEPS}" -DDIR=${CMAKE_CURRENT_SOURCE_DIR}
            -P ${CMAKE_SOURCE_DIR}/cmake/check_includes.cmake)

  # Header test: each header is self-contained.
  set(header_units)
  foreach(header ${M_HEADERS})
    string(MAKE_C_IDENTIFIER ${header} id)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/header_${id}.cc)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${name}/${header}\" // NOLINT\n" @ONLY)
    list(APPEND header_units ${unit})
  endforeach()
  if(header_units)
    add_library(${name}_headers OBJECT EXCLUDE_FROM_ALL ${header_units})
    target_link_libraries(${name}_headers PRIVATE rn_flags ${deps} ${M_LIBS})
    target_compile_options(${name}_headers PRIVATE -O0 -g0) # nobody runs them
    if(NOT TARGET all_headers)
      add_custom_target(all_headers)
    endif()
    add_dependencies(all_headers ${name}_headers)
  endif()

  if(M_TESTS)
    add_executable(${name}_test ${M_TESTS})
    if(RN_LAYER_${name} GREATER 2)
      set_target_properties(${name}_test PROPERTIES RN_DECODES_NOTHING ON)
    endif()
    rn_whole(${name}_test ${name})
    target_link_libraries(${name}_test PRIVATE reclaimnet_${name} rn_places ${M_TEST_LIBS}
      GTest::gtest GTest::gtest_main GTest::gmock)
    add_test(NAME ${name}.unit COMMAND ${name}_test)
    set_tests_properties(${name}.unit PROPERTIES LABELS unit TIMEOUT 300)
    if(RN_SANITIZE)
      set_tests_properties(${name}.unit PROPERTIES TIMEOUT 1200)
    endif()
  endif()
  set_tests_properties(${name}.link ${name}.includes PROPERTIES LABELS structure)
endfunction()
