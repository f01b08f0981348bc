/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda for tests: one GPU whose memory is the file RN_FAKE_CUDA_MEMORY, which outlives its
 * processes as a card's does, and is given out from its beginning. RN_FAKE_CUDA chooses: "zeros"
 * answers zeros to every read, "twice" gives the first piece out again for each later one, "full"
 * has no room, "lost" fails from the first fill on, "none" shows no GPU, "hang" never starts.
 * RN_FAKE_CUDA_GPU is its UUID. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  OK = 0,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_VALUE = 1,
  ILLEGAL_STATE = 401,
  BASE = 0x10000
};

static char* memory;
static size_t all, taken;

static int is_mode(const char* mode) {
  const char* chosen = getenv("RN_FAKE_CUDA");

  return chosen && strcmp(chosen, mode) == 0;
}

int cuInit(unsigned flags) {
  const char* path = getenv("RN_FAKE_CUDA_MEMORY");
  struct stat about;
  int fd;

  while (is_mode("hang")) usleep(1000);
  if (flags != 0 || !path || (fd = open(path, O_RDWR | O_CLOEXEC)) < 0 || fstat(fd, &about) != 0)
    return NO_DEVICE;
  all = (size_t)about.st_size;
  memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? NO_DEVICE : OK;
}

int cuDeviceGetCount(int* count) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  const char* uuid = getenv("RN_FAKE_CUDA_GPU");

  *count = !is_mode("none") && visible && strcmp(visible, uuid ? uuid : "GPU-of-the-test") == 0;
  return OK;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = 7;
  return ordinal == 0 ? OK : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &memory;
  return device == 7 ? OK : INVALID_VALUE;
}

int cuCtxSetCurrent(void* context) {
  return context == &memory ? OK : INVALID_VALUE;
}

int cuMemGetInfo_v2(size_t* left, size_t* of) {
  *left = all - taken;
  *of = all;
  return OK;
}

int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  if (is_mode("full") || bytes > all - taken) return OUT_OF_MEMORY;
  *address = BASE + (is_mode("twice") ? 0 : taken);
  taken += bytes;
  return OK;
}

static char* place(unsigned long long address, size_t bytes) {
  return address < BASE || address - BASE > all || bytes > all - (address - BASE)
             ? NULL
             : memory + (address - BASE);
}

int cuMemsetD32_v2(unsigned long long address, unsigned word, size_t count) {
  char* at = place(address, 4 * count);
  size_t i;

  if (!at) return INVALID_VALUE;
  if (is_mode("lost")) return ILLEGAL_STATE;
  for (i = 0; i < count; i++) memcpy(at + 4 * i, &word, 4);
  return OK;
}

int cuCtxSynchronize(void) {
  return OK;
}

int cuMemcpyDtoH_v2(void* to, unsigned long long address, size_t bytes) {
  char* at = place(address, bytes);

  if (!at) return INVALID_VALUE;
  if (is_mode("zeros"))
    memset(to, 0, bytes);
  else
    memcpy(to, at, bytes);
  return OK;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == ILLEGAL_STATE ? "CUDA_ERROR_ILLEGAL_STATE" : "CUDA_ERROR_OTHER";
  return OK;
}
