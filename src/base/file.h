/* file: small files written whole or not at all, and where they are kept.
 *
 * What was there stays until the new text is on the disk.  Failures come with a sentence that
 * names the file. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Replaces path by n bytes: a new file beside it, synced, then renamed; where it is a link, its
 * target.  What is no plain file (a pipe, a terminal) is written to.  0, -GW_E_NOENT, -GW_E_PERM,
 * -GW_E_SIZE (a path too long) or -GW_E_IO, with a sentence in message. */
int file_replace(const char *path, const char *text, size_t n, char *message, size_t size);

/* Could it be written there?  Before hours of work are lost.  As file_replace. */
int file_possible(const char *path, char *message, size_t size);

/* Makes dir and what is above it.  As file_replace. */
int file_make_directory(const char *dir, char *message, size_t size);

/* Reads at most size bytes (no NUL is added); how many, or as file_replace. */
ssize_t file_read(const char *path, char *out, size_t size, char *message, size_t message_size);

/* All of n bytes to fd.  0 or -1 with errno. */
int file_write_all(int fd, const char *p, size_t n);

/* The sentence "path cannot be WHAT: why" for errno, and its gw_error. */
int file_failed(char *message, size_t size, const char *path, const char *what);

/* $XDG_CACHE_HOME/gpuward/name, else ~/.cache/gpuward/name.  0, -GW_E_NOENT (neither is known) or
 * -GW_E_SIZE. */
int file_cache_directory(const char *name, char *out, size_t size);

#endif
