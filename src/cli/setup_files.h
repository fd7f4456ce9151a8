/* setup_files: writes the files of `gpuward setup`, as root and in the home of a user.
 *
 * A file is complete or absent, and an existing file is replaced only on request. Work in a
 * user's home is done by a child process that has only the rights of that user and follows no
 * link below the home. */
#ifndef GW_CLI_SETUP_FILES_H
#define GW_CLI_SETUP_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define SETUP_NEW_FILE ".setup-new" /* suffix of a file that is not complete yet */
#define SETUP_FILE_MAX (256u << 10) /* larger files are not read */
/* returned like an errno if setup did not write the file, or the file was changed since */
#define SETUP_CHANGED 200

/* Where setup writes, and which user gets a copy of the token. */
struct setup_place {
	const char *prefix; /* "": the real root; else a folder that stands for "/" */
	const char *user;   /* name of the user who gets a copy of the token; NULL: nobody */
	const char *home;   /* home folder of that user, without the prefix */
	uid_t uid;
	gid_t gid;
};

/* Writes the path below the prefix.  Returns out. */
const char *setup_path(const struct setup_place *at, const char *path, char out[PATH_MAX]);

/* Refuses a prefix if a folder in which setup would write is a link, because the link may lead
 * out of the prefix. If `lock` is true, takes the lock that only one setup at a time can have.
 * Call setup_end() with *ret_lock in any case. Returns an exit code; an error has been
 * printed. */
int setup_begin(const struct setup_place *at, bool lock, int *ret_lock);
void setup_end(const struct setup_place *at, int lock);

/* Finds an account by its name, or by *uid if name is NULL. Searches in /etc/passwd below the
 * prefix; if the prefix is "", searches with NSS. home has size bytes. Returns 0 or
 * -GW_E_NOENT. */
int setup_account(const char *prefix, const char *name, uid_t *uid, gid_t *ret_gid, char *home,
		  size_t size, char *ret_name, size_t name_size);

/* Writes the SHA-256 of a text. */
void setup_sum(const char *text, size_t n, char out[static 65]);

/* Reads a regular file that is not a link.  Returns its size, or a negative errno. */
long setup_read(int folder, const char *path, char *out, size_t size, struct stat *ret);

/* Compares a file with two checksums (NULL or "": no checksum). Returns 0 if one of them
 * matches, ENOENT, or SETUP_CHANGED. */
int setup_compare(int folder, const char *name, const char *const sum[2]);

struct setup_contents {
	const char *text;
	mode_t mode;
	uid_t uid; /* (uid_t)-1: unchanged */
	gid_t gid;
	bool replaces; /* true: replace an existing file; false: an existing file is an error */
};

/* Writes a file.  Returns 0 or an errno. */
int setup_put(const char *path, const struct setup_contents *c);

enum setup_home_verb {
	HOME_FOLDER,        /* create a folder */
	HOME_PUT,           /* write a file that does not exist */
	HOME_LOOK,          /* compare a file with two checksums */
	HOME_MAY_CREATE,    /* check that the user may create the missing parts of the path */
	HOME_REMOVE,        /* remove a file if one of the checksums matches */
	HOME_REMOVE_FOLDER, /* remove an empty folder */
};

struct setup_home_request {
	enum setup_home_verb verb;
	const char *path; /* path below setup_place.home */
	const char *text; /* HOME_PUT */
	mode_t mode;      /* HOME_PUT, HOME_FOLDER */
	/* HOME_LOOK, HOME_REMOVE: checksums of the contents that setup wrote */
	const char *sum[2];
};

/* Carries out q in a child process that has only the rights of the user, so that no link in the
 * home leads to a place that the user cannot reach. Returns 0, an errno or SETUP_CHANGED. */
int setup_as_user(const struct setup_place *at, const struct setup_home_request *q);

#endif
