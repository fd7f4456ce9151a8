/* file: writes small files completely or not at all, reads secrets, and finds the folders that
 * a user has for caches and for the configuration.
 *
 * The old file stays until the new contents are on disk. Each error comes with a sentence that
 * names the file. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Replaces the contents of the file by n bytes: writes a new file in the same folder, syncs it
 * and renames it. If path is a symbolic link, its target is replaced. If path is a pipe, a
 * terminal or a device, the bytes are written to it. Returns 0, -GW_E_NOENT, -GW_E_PERM,
 * -GW_E_SIZE (the path is too long) or -GW_E_IO. An error comes with a sentence in message. */
int file_replace(const char *path, const char *text, size_t n, char *message, size_t size);

/* Works like file_replace(), but does not lose the file that it replaces, even if another
 * program creates or replaces this file at the same time. ret_before is the new name of the
 * replaced file, in the same folder; "": there was no file. Returns the same values as
 * file_replace(), or -GW_E_NOSUPPORT without a sentence: path is a pipe, a terminal or a
 * device, or the file system or the kernel cannot exchange two names. Then nothing was
 * written. */
int file_swap(const char *path, const char *text, size_t n, char *ret_before,
	      size_t before_size, char *message, size_t size);

/* Checks whether file_replace() could write the file; call it before a long measurement.
 * Returns the same values as file_replace(). */
int file_possible(const char *path, char *message, size_t size);

/* Creates dir and its parents. Returns the same values as file_replace(). */
int file_make_directory(const char *dir, char *message, size_t size);

#define FILE_PIPE_WAIT_MS 10000
#define FILE_FIFO_WAIT_MS 3000

/* Opens a pipe, a terminal or a device for writing. If it is a FIFO that no program reads,
 * fails with EPIPE after FILE_FIFO_WAIT_MS instead of blocking. Returns a descriptor, or -1
 * with errno. */
int file_open_special(const char *path);

/* Opens a file that a user named, for reading. If it is a FIFO to which no program writes,
 * fails with ETIMEDOUT after FILE_PIPE_WAIT_MS instead of blocking. Returns a descriptor, or -1
 * with errno. */
int file_open(const char *path);
FILE *file_fopen(const char *path);

/* True if this process is root and other users can change the file or folder at an absolute
 * path. Those users could then choose what root runs, reads or writes. */
bool file_is_unsafe_for_root(const char *path);

/* Reads at most size bytes (adds no NUL). Returns the number of bytes, or the same errors as
 * file_replace(). */
ssize_t file_read(const char *path, char *out, size_t size, char *message, size_t message_size);

/* Works like file_read() for a file that gpuward stored itself, for example in the cache. If
 * path is not a regular file, returns -GW_E_ARG at once: the caller must not wait for a pipe
 * that is there by mistake. */
ssize_t file_read_regular(const char *path, char *out, size_t size, char *message,
			  size_t message_size);

/* Works like strerror(), but has its own texts for EPIPE and for the ETIMEDOUT of
 * file_open(). */
const char *file_strerror(int e);

/* Reads a line without its newline into out. Returns 1; 0 at the end of the file (out then
 * holds the last line if that line had no newline); -GW_E_SIZE if the line is longer than the
 * maximum of out (buf_init()); -GW_E_NOMEM or -GW_E_IO. */
int file_read_line(FILE *f, struct buf *out);

/* True if a write of at most PIPE_BUF bytes to fd does not block now. A terminal that is nearly
 * full is reported as true, but may block. */
bool file_accepts(int fd);

/* Writes all n bytes to fd. Returns 0, or -1 with errno. */
int file_write_all(int fd, const char *p, size_t n);

/* Reads from fd until the end or until size bytes are read. Returns the number of bytes, or -1
 * with errno. */
ssize_t file_read_all(int fd, char *out, size_t size);

/* Returns the gw_error of an errno. */
int file_error(int e);

/* Writes the sentence "PATH cannot be WHAT: REASON". The reason and the returned gw_error are
 * those of errno. `what` is a participle such as "written". */
int file_failed(char *message, size_t size, const char *path, const char *what);

/* Writes the path $XDG_CACHE_HOME/gpuward/name, or else ~/.cache/gpuward/name. Returns 0,
 * -GW_E_NOENT (neither XDG_CACHE_HOME nor HOME is an absolute path) or -GW_E_SIZE. */
int file_cache_directory(const char *name, char *out, size_t size);
/* Does the same with XDG_CONFIG_HOME and ~/.config. */
int file_user_config(const char *name, char *out, size_t size);

/* Makes file_cache_directory() add the folder `part` to every later path, so that data learned
 * from simulated GPUs stays separate. `part` must stay valid until the program ends. Call this
 * function before threads start. */
void file_cache_apart(const char *part);

#define SECRET_MAX 1024
#define SECRET_MIN 16

/* Reads a token: the first line of a file that only its owner can read. Clear the token with
 * explicit_bzero() after use. Returns 0, -GW_E_PERM (other users can read the file, or we
 * cannot read it), -GW_E_ARG (the line is too short) or an error of file_read(). An error comes
 * with a sentence. */
int secret_read(const char *path, char out[static SECRET_MAX], char *message, size_t size);

/* Reads a secret that we send to another server. The secret is the first line of a regular file
 * and has at most SECRET_MAX - 1 bytes. Refuses a file that another user could replace, because
 * that user could then make us send the contents of any file that we can read. `key` is the
 * name of the setting that the message names, such as token_file. Returns the same values as
 * secret_read(). */
int secret_read_for(const char *path, const char *key, char out[static SECRET_MAX],
		    char *message, size_t size);

#endif
