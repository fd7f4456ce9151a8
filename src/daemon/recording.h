/* recording: writes everything that the guard receives as lines of a file, in order, and
 * replays such a file.
 *
 * The guard is pure: the same input gives the same decisions. guard/scene.h writes the scenes;
 * this module writes the lines between them. A file may hold several runs of the service. Each
 * run begins with its policy. If the recording began while the guard was already running, the
 * state of the guard follows the policy. */
#ifndef GW_DAEMON_RECORDING_H
#define GW_DAEMON_RECORDING_H

#include "guard/guard.h"

#include "base/buf.h"

/* Version of the file format that is written. Version 2 added the names of workers and their
 * records. Version 3 added reservations of an earlier run and other services. Version 4 added
 * the policy. Version 5 writes enums by name; earlier versions wrote numbers. Version 6 added
 * the name of a registered game. Version 7 added the time of a manual reason to a record.
 * Version 8 added the orders that were under way when the service stopped. Version 9 added the
 * orders that were fetched to be carried out. Version 10 writes the pid and the name of a game
 * as two words, and the contender with the state. */
#define RECORDING_FORM 10

/* Begins a run. last_id is guard_last_id(); ids in the following lines are larger. */
void recording_begin(struct buf *out, uint64_t last_id, enum guard_mode mode);
/* Writes the policy that applies to the following lines. Call it after recording_begin() or
 * recording_swap(). */
void recording_policy(struct buf *out, const struct policy *p);
/* Writes the state of a running guard. Call it after the lines of the workers and of the inputs
 * that apply when the recording begins. */
void recording_state(struct buf *out, const struct guard *g);
/* Writes one worker. Call it once per worker after recording_begin() or recording_swap().
 * Later lines name a worker by its index. record is the guard's record of the worker, or
 * NULL if there is none. */
void recording_worker(struct buf *out, unsigned worker, const char *name,
		      const struct guard_record *record);
/* A change of policy is written by recording_swap(), then recording_policy() and
 * recording_worker() for each worker, then recording_swapped(). */
void recording_swap(struct buf *out);
void recording_swapped(struct buf *out, enum guard_mode mode, uint64_t now_ns);
/* Writes the outcome of an order. worker is the index of the worker that waits for the
 * outcome, or -1 if no worker waits. */
void recording_outcome(struct buf *out, const struct guard_outcome *o, int worker,
		       uint64_t now_ns);
/* Writes that the order of a worker was fetched. */
void recording_fetched(struct buf *out, unsigned worker, uint64_t now_ns);
/* underway is guard_orders_underway() before guard_stop(). */
void recording_stop(struct buf *out, uint32_t underway, uint64_t now_ns);
void recording_request(struct buf *out, int worker, enum guard_request what, uint64_t ttl_ns,
		       uint64_t now_ns);
/* Writes the user of the next request, reservation or game. uid is -1 for a user without a
 * limit. */
void recording_requester(struct buf *out, int64_t uid, uint64_t now_ns);
void recording_reason(struct buf *out, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns);
void recording_trust(struct buf *out, const char *gpu, uint64_t now_ns);
void recording_heat(struct buf *out, const char *gpu, unsigned heat, const char *why,
		    uint64_t now_ns);
void recording_foreign(struct buf *out, const char *gpu, const char *holder, uint64_t now_ns);
/* Writes a request for a reservation. id is the id of the reservation, or 0 if the guard
 * refused it. */
void recording_reserve(struct buf *out, const char *gpu, uint64_t bytes, int64_t pid,
		       uint64_t ttl_ns, uint64_t id, uint64_t now_ns);
void recording_reserve_restore(struct buf *out, const struct guard_reservation *r);
void recording_release(struct buf *out, uint64_t id, uint64_t now_ns);
void recording_idle_economy(struct buf *out, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j, uint64_t now_ns);
void recording_games(struct buf *out, unsigned count, const struct scene_game *latest,
		     uint64_t now_ns);

/* Names of the values of enum guard_request, for writing and reading; NULL after the last. */
extern const char *const recording_requests[];

struct recording_file {
	int fd;       /* -1 if nothing is recorded. */
	bool regular; /* A regular file can be truncated and renamed. */
	uint64_t size;
};

/* Opens the file for appending, and removes an incomplete last line that a killed service left.
 * Never blocks. Returns 0, or -1 with errno. A pipe is refused: errno is ENXIO if the pipe has
 * no reader, and EINVAL if the pipe has a reader. */
int recording_file_open(struct recording_file *r, const char *path);
void recording_file_close(struct recording_file *r);

/* Adds the whole text. If that fails, a regular file stays unchanged. Returns 0, or -1 with
 * errno. */
int recording_file_add(struct recording_file *r, const char *text, size_t size);

/* True if the file is still at path. After a log rotation, it is not: the rotation moves the
 * file away and then makes the service reload. */
bool recording_file_in_place(const struct recording_file *r, const char *path);

/* Renames the file to path.1, which replaces an existing path.1. The caller then closes the
 * file and opens a new one. If the file cannot be renamed, it is emptied, because the recording
 * must not grow without limit. Returns 0, or -1 with errno. */
int recording_file_move(struct recording_file *r, const char *path);

struct recording_reader;

/* Creates a reader. Borrows what p points to; p may be NULL. If dry is true, the guard uses the
 * policy p for every run, and skips recorded outcomes because no order is carried out.
 * Otherwise the guard uses the policy that was recorded with each run, or p if none was
 * recorded. Returns 0 or -GW_E_NOMEM. */
int recording_reader_new(const struct policy *p, bool dry, struct recording_reader **ret);
void recording_reader_free(struct recording_reader *r);

/* Passes one line, without its newline, to the guard. Returns 0, -GW_E_PARSE, -GW_E_NOSUPPORT
 * (a later version of gpuward wrote this run), -GW_E_NOENT (the run has no policy, and none was
 * given) or -GW_E_NOMEM. */
int recording_read(struct recording_reader *r, const char *line);

/* Reads the last complete scene in lines, which are a recording or a part of one. *ret gets the
 * scene as a guard with the policy p would observe it. Lines that are neither scenes nor names
 * of workers are skipped. Returns 0, -GW_E_NOMEM, or -GW_E_PARSE with the number of the wrong
 * line in *ret_line, or with 0 if there is no complete scene. */
int recording_last_scene(const char *lines, const struct policy *p, struct scene *ret,
			 unsigned *ret_line);

/* Converts the six flags of an outcome line: ok, busy, in flight, no answer, listed, refused.
 * Recordings of earlier versions can have several flags set. "No answer" is then decisive,
 * because the guard checked it first. */
enum guard_ending recording_ending(const uint64_t flag[6]);

/* Converts a time of the guard's clock to wall time, with the clocks of the run's last scene.
 * Returns 0 if the run has no scene yet. */
uint64_t recording_wall_ns(const struct recording_reader *r, uint64_t mono_ns);

/* Gets the next decision since the last line. Returns false if there is none. *ret_wall_ns
 * is the time of the decision as recording_wall_ns() returns it. */
bool recording_next_decision(struct recording_reader *r, struct guard_decision *ret,
			     uint64_t *ret_wall_ns);

struct recording_counts {
	uint64_t scenes, runs;
};
struct recording_counts recording_counts(const struct recording_reader *r);
/* Returns the policy of the last decisions. */
const struct policy *recording_reader_policy(const struct recording_reader *r);
/* Returns the guard, or NULL if nothing was read yet. */
const struct guard *recording_reader_guard(const struct recording_reader *r);

#endif
