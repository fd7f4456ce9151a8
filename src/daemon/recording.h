/* recording: everything that the guard receives, as lines of a file, in its order, and the replay of such a file.
 *
 * The guard is pure: the same input gives the same decisions.  Scenes are written by guard/scene.h; here are the lines
 * between them.  A file may hold several runs of the service.  Each run begins with the policy that it decides by, and
 * with everything that the guard knew if it was not recorded from its start. */
#ifndef GW_DAEMON_RECORDING_H
#define GW_DAEMON_RECORDING_H

#include "guard/guard.h"

#include "base/buf.h"

/* Of what is written.  Form 5 has enums by name; earlier forms had numbers.  Form 4 was the first with the policy, form 3
 * with reservations of an earlier run and other services, form 2 with names of workers and their records. */
#define RECORDING_FORM 5

/* ---- writing: each function adds its line ---- */
/* last_id: guard_last_id(); ids in the lines that follow are larger. */
void recording_begin(struct buf *out, uint64_t last_id, enum guard_mode mode);
/* After begin or swap: decisions follow from this policy from here on. */
void recording_policy(struct buf *out, const struct policy *p);
/* After the workers of a begin, and the inputs that still hold. */
void recording_state(struct buf *out, const struct guard *g);
/* After begin or swap, once per worker: the lines that follow name it by its position.  record: what the guard knows of
 * it, or NULL. */
void recording_worker(struct buf *out, unsigned worker, const char *name,
		      const struct guard_record *record);
/* A change of policy: swap, then policy and workers, then swapped. */
void recording_swap(struct buf *out);
void recording_swapped(struct buf *out, enum guard_mode mode, uint64_t now_ns);
/* worker: the one that waits for it; -1: none. */
void recording_outcome(struct buf *out, const struct guard_outcome *o, int worker,
		       uint64_t now_ns);
void recording_stop(struct buf *out, uint64_t now_ns);
void recording_request(struct buf *out, int worker, enum guard_request what, uint64_t ttl_ns,
		       uint64_t now_ns);
/* Before the request, reservation or game that it is for; -1: a user that is not limited. */
void recording_requester(struct buf *out, int64_t uid, uint64_t now_ns);
void recording_reason(struct buf *out, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns);
void recording_trust(struct buf *out, const char *gpu, uint64_t now_ns);
void recording_heat(struct buf *out, const char *gpu, unsigned heat, const char *why,
		    uint64_t now_ns);
void recording_foreign(struct buf *out, const char *gpu, const char *holder, uint64_t now_ns);
/* id: the one that the guard gave; 0: the reservation was refused. */
void recording_reserve(struct buf *out, const char *gpu, uint64_t bytes, int64_t pid,
		       uint64_t ttl_ns, uint64_t id, uint64_t now_ns);
void recording_reserve_restore(struct buf *out, const struct guard_reservation *r);
void recording_release(struct buf *out, uint64_t id, uint64_t now_ns);
void recording_idle_economy(struct buf *out, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j, uint64_t now_ns);
void recording_games(struct buf *out, unsigned count, uint64_t now_ns);

/* Names in the order of their enums, for both halves; NULL ends them. */
extern const char *const recording_modes[],
	*const recording_requests[], *const recording_holds[], *const recording_heats[];

/* ---- the file: adds whole lines, and rotates it; callers report errors ---- */
struct recording_file {
	int fd;       /* -1: not recording */
	bool regular; /* a file that can be truncated and renamed */
	uint64_t size;
};

/* Appends to an existing file, after removing half a line that a killed service left.  A pipe would block until it has a
 * reader: EINVAL or ENXIO.  0, or -1 with errno. */
int recording_file_open(struct recording_file *r, const char *path);
void recording_file_close(struct recording_file *r);

/* Adds all of it; if that fails in a regular file, nothing.  0, or -1 with errno. */
int recording_file_add(struct recording_file *r, const char *text, size_t size);

/* Is the file still at path?  A log rotation moves it away and sends a reload. */
bool recording_file_in_place(const struct recording_file *r, const char *path);

/* Renames it to path.1, replacing that file; the caller closes it and opens a new one.  -1 with errno: it could not be
 * renamed, and is emptied instead, because it must not grow. */
int recording_file_move(struct recording_file *r, const char *path);

/* ---- reading ---- */
struct recording_reader;

/* What p points to is borrowed.  dry: p decides everything, and outcomes are skipped because nothing is done; else each
 * run is decided by the policy that was recorded with it, or by p where none was; p may be NULL.  0 or -GW_E_NOMEM. */
int recording_reader_new(const struct policy *p, bool dry, struct recording_reader **ret);
void recording_reader_free(struct recording_reader *r);

/* Hands a line, without its newline, to the guard.  0, -GW_E_PARSE, -GW_E_NOSUPPORT (a later version wrote this run),
 * -GW_E_NOENT (the run has no policy, and none was given) or -GW_E_NOMEM. */
int recording_read(struct recording_reader *r, const char *line);

/* What was decided since; until it returns false.  wall_ns: by the clock of the last scene. */
bool recording_next_decision(struct recording_reader *r, struct guard_decision *ret,
			     uint64_t *ret_wall_ns);

struct recording_counts {
	uint64_t scenes, runs;
};
struct recording_counts recording_counts(const struct recording_reader *r);
/* The policy of the last decisions. */
const struct policy *recording_reader_policy(const struct recording_reader *r);
/* NULL: nothing was read yet. */
const struct guard *recording_reader_guard(const struct recording_reader *r);

#endif
