/* Lets writing or syncing of the store's append-only files fail, as a broken or read-only disk does.
 *
 * Loaded with LD_PRELOAD. While the file that SALMON_CHAOS_FAULT names is there and holds, for example, "fsync 5", syncing a
 * file whose name ends in .aof fails with error number 5.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);

__attribute__((constructor)) static void find_real(void) {
  real_write = dlsym(RTLD_NEXT, "write");
  real_fsync = dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}

static int is_append_only(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  return length > 4 && memcmp(path + length - 4, ".aof", 4) == 0;
}

/* Returns the error number with which this call is to fail; 0 if it is carried out. */
static int fault_of(const char *call, int fd) {
  const char *path = getenv("SALMON_CHAOS_FAULT");
  char text[64] = "", wanted[16] = "";
  int number = 0, file;
  if (path == NULL || !is_append_only(fd) || (file = open(path, O_RDONLY)) < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0 || sscanf(text, "%15s %d", wanted, &number) != 2 || strcmp(wanted, call) != 0) return 0;
  return number;
}

ssize_t write(int fd, const void *bytes, size_t size) {
  int number = fault_of("write", fd);
  if (number == 0) return real_write(fd, bytes, size);
  errno = number;
  return -1;
}

int fsync(int fd) {
  int number = fault_of("fsync", fd);
  if (number == 0) return real_fsync(fd);
  errno = number;
  return -1;
}

int fdatasync(int fd) {
  int number = fault_of("fsync", fd);
  if (number == 0) return real_fdatasync(fd);
  errno = number;
  return -1;
}
