/* setup_files: writes and removes the files of `gpuward setup`, as root and in the home folder
 * of a user.
 *
 * A file is never written in part, and an existing file is replaced only on request. Work in a
 * user's home folder is done by a child process, which has only the rights of that user and
 * follows no link below the home folder. */
#ifndef GW_CLI_SETUP_FILES_H
#define GW_CLI_SETUP_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define SETUP_NEW_FILE ".setup-new" /* suffix of a file while it is written */
#define SETUP_FILE_MAX (256u << 10) /* larger files are not read */
/* Error number like an errno: setup did not write the file, or it was changed afterwards. */
#define SETUP_CHANGED 200

/* Where setup writes, and which user gets a copy of the token. */
struct setup_place {
	const char *prefix; /* folder that is used instead of "/"; "": the real root */
	const char *user;   /* name of the user who gets a copy of the token; NULL: nobody */
	const char *home;   /* home folder of that user, without the prefix */
	uid_t uid;
	gid_t gid;
};

/* Writes the prefix and the path to out. Returns out. */
const char *setup_path(const struct setup_place *at, const char *path, char out[PATH_MAX]);

/* With a prefix, fails if a folder in which setup would write is a link, because the link may
 * lead out of the prefix. If `lock` is true, takes a lock, so that only one setup runs at a
 * time. Call setup_end() with *ret_lock afterwards, even after an error. Returns an exit
 * code. */
int setup_begin(const struct setup_place *at, bool lock, int *ret_lock);
void setup_end(const struct setup_place *at, int lock);

/* Finds an account by its name, or by *uid if name is NULL. With a prefix, searches in the file
 * etc/passwd below the prefix; if the prefix is "", searches with getpwnam() or getpwuid().
 * Sizes may be 0 if the caller does not need the home folder or the name. Returns 0 or
 * -GW_E_NOENT. */
int setup_account(const char *prefix, const char *name, uid_t *uid, gid_t *ret_gid, char *home,
		  size_t size, char *ret_name, size_t name_size);

/* Reads a regular file that is not a link.  Returns its size, or a negative errno. */
long setup_read(int folder, const char *path, char *out, size_t size, struct stat *ret);

/* Compares a file with two checksums; each may be NULL or "". Returns 0 if one of them
 * matches, ENOENT if there is no file, else SETUP_CHANGED. */
int setup_compare(int folder, const char *name, const char *const sum[2]);

struct setup_contents {
	const char *text;
	mode_t mode;
	uid_t uid; /* owner of the file; (uid_t)-1: the user of this process */
	gid_t gid;
	bool replaces; /* true: replace an existing file; false: an existing file is an error */
};

/* Writes a file completely or not at all. Returns 0 or an errno. */
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
	const char *path; /* begins with setup_place.home */
	const char *text; /* for HOME_PUT */
	mode_t mode;      /* for HOME_PUT and HOME_FOLDER */
	/* for HOME_LOOK and HOME_REMOVE: checksums of the contents that setup wrote */
	const char *sum[2];
};

/* Carries out q in a child process that has only the rights of the user at->user. Therefore a
 * link in the home folder cannot lead to files that the user may not change. Returns 0, an
 * errno or SETUP_CHANGED; EINTR means that the child process was killed. */
int setup_as_user(const struct setup_place *at, const struct setup_home_request *q);

#endif
