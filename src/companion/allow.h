/* allow: what the companion may do, and for whom: the lines of one file that only root can write.
 *
 *	client gpuward                                     a user's name or number
 *	unit ollama.service                                may be stopped and started
 *	checkpoint cgroup=/system.slice/llama.service      may be put away and brought back
 *	signal exe=/usr/bin/worker uid=1000                may be signalled
 *
 * All that a line of a process says must be so; a control group holds those below it.  What no line allows
 * is refused, and so is everything while a line cannot be understood. */
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
	char exe[256], cgroup[256]; /* "": any */
	char name[256];             /* of a unit */
	int64_t uid;                /* of a process or a client; -1: any */
};

struct allow {
	const char *path; /* borrowed */
	struct allow_rule rule[ALLOW_RULES];
	unsigned rules;
};

/* Of a file.  0, or a negative gw_error with a sentence: it is not there, others than root can write it,
 * or a line cannot be understood. */
int allow_load(struct allow *ret, const char *path, char *message, size_t size);
/* Of a text, which is changed; path is for sentences. */
int allow_read(struct allow *ret, const char *path, char *text, char *message, size_t size);

/* 0, or -GW_E_PERM with a sentence that has the line to add. */
int allow_client(const struct allow *a, uid_t uid, char *message, size_t size);
int allow_unit(const struct allow *a, const char *unit, char *message, size_t size);
int allow_process(const struct allow *a, enum allow_kind kind, const struct proc *p,
		  char *message, size_t size);

#endif
