/* Loses what the store has written to its append-only files and not synced, as a power cut does.
 *
 * Loaded with LD_PRELOAD. What is written to a file whose name ends in .aof stays in the memory of the process until it is
 * synced, so kill -9 drops exactly what a machine without power would drop. With SALMON_CHAOS_NO_SYNC, syncing does nothing:
 * the fault that a test of durability has to find.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILES 4096

static struct kept {
  char *bytes;
  size_t size;
  pid_t owner;
} kept[MOST_FILES];

static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_close)(int);

__attribute__((constructor)) static void find_real(void) {
  real_write = dlsym(RTLD_NEXT, "write");
  real_fsync = dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  real_close = dlsym(RTLD_NEXT, "close");
}

static int is_append_only(int fd) {
  char link[64], path[4096];
  if (fd < 0 || fd >= MOST_FILES) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  return length > 4 && memcmp(path + length - 4, ".aof", 4) == 0;
}

/* Writes what was kept; a child of fork, whose copy belongs to its parent, writes nothing. */
static int write_out(int fd) {
  if (fd < 0 || fd >= MOST_FILES || kept[fd].size == 0) return 0;
  struct kept mine = kept[fd];
  kept[fd] = (struct kept){0};
  size_t done = 0;
  while (mine.owner == getpid() && done < mine.size) {
    ssize_t count = real_write(fd, mine.bytes + done, mine.size - done);
    if (count < 0) {
      free(mine.bytes);
      return -1;
    }
    done += (size_t)count;
  }
  free(mine.bytes);
  return 0;
}

ssize_t write(int fd, const void *bytes, size_t size) {
  if (!is_append_only(fd)) return real_write(fd, bytes, size);
  char *grown = realloc(kept[fd].bytes, kept[fd].size + size);
  if (grown == NULL) return real_write(fd, bytes, size);
  memcpy(grown + kept[fd].size, bytes, size);
  kept[fd] = (struct kept){grown, kept[fd].size + size, getpid()};
  return (ssize_t)size;
}

int fsync(int fd) {
  if (getenv("SALMON_CHAOS_NO_SYNC") && is_append_only(fd)) return 0;
  return write_out(fd) < 0 ? -1 : real_fsync(fd);
}

int fdatasync(int fd) {
  if (getenv("SALMON_CHAOS_NO_SYNC") && is_append_only(fd)) return 0;
  return write_out(fd) < 0 ? -1 : real_fdatasync(fd);
}

int close(int fd) {
  write_out(fd);
  return real_close(fd);
}
