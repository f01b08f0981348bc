// SPDX-License-Identifier: Apache-2.0
#include "ahead.h"

#if defined(__x86_64__)
// The program's entry: as the kernel left it (the count of words, then the words), begin() below it
// on the stack, and then the C library's own entry on the stack and with the register that it
// expects.
asm(R"(
  .text
  .globl rn_begin
  .type rn_begin, @function
rn_begin:
  mov %rsp, %rbx
  mov %rdx, %r12
  xor %ebp, %ebp
  mov (%rsp), %edi
  lea 16(%rsp), %rsi
  dec %edi
  and $-16, %rsp
  call rn_begin_ahead
  mov %rbx, %rsp
  mov %r12, %rdx
  jmp _start
  .size rn_begin, .-rn_begin
)");

extern "C" void rn_begin_ahead(int count, const char* const* words) {
  rn::begin(count, words);
}
#endif
