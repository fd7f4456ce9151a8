/* allow: reads the file of rules. The rules say what the companion may do, and for which users.
 * No user except root may be able to write this file.
 *
 *     client gpuward                                   a user's name or number
 *     unit ollama.service                              may be stopped and started
 *     checkpoint cgroup=/system.slice/llama.service    may be checkpointed and restored
 *     signal exe=/usr/bin/worker uid=1000              may be signalled
 *
 * A process must match all fields of a line; a control group includes the groups below it. The
 * companion refuses every request that no line allows, and all requests while any line of the
 * file is invalid. */
#ifndef GW_COMPANION_ALLOW_H
#define GW_COMPANION_ALLOW_H

#include "device/proc.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ALLOW_RULES 64

enum allow_kind { ALLOW_CLIENT, ALLOW_UNIT, ALLOW_CHECKPOINT, ALLOW_SIGNAL };

struct allow_rule {
	enum allow_kind kind;
	char exe[256], cgroup[256]; /* "" matches any value. */
	char name[256];             /* Name of the unit. */
	int64_t uid;                /* uid of the process or client. -1 matches any user. */
};

struct allow {
	const char *path; /* Borrowed. */
	struct allow_rule rule[ALLOW_RULES];
	unsigned rules;
};

/* Reads a file. Returns 0. Returns a negative gw_error and writes a sentence if the file is
 * missing, if a user other than root can write the file, or if a line is invalid. */
int allow_load(struct allow *ret, const char *path, char *message, size_t size);
/* Reads the rules from `text`, and changes `text` while reading. path is used in messages
 * only. */
int allow_read(struct allow *ret, const char *path, char *text, char *message, size_t size);

/* Check whether a rule allows the client, the unit or the process; root is always an allowed
 * client. Return 0, or -GW_E_PERM with a sentence that contains the line to add to the file. */
int allow_client(const struct allow *a, uid_t uid, char *message, size_t size);
int allow_unit(const struct allow *a, const char *unit, char *message, size_t size);
int allow_process(const struct allow *a, enum allow_kind kind, const struct proc *p,
		  char *message, size_t size);

#endif
