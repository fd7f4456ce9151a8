/* Writes a recording. The words of a line are separated by tabs. A free text is the last word
 * of its line, and each of its control characters becomes a blank. */
#include "recording.h"

#include "base/file.h"
#include "base/member.h"
#include "guard/guard_state.h"
#include "guard/policy_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const recording_requests[] = { "evict",       "resume",  "hold-evicted",
					   "hold-active", "release", "resume-now",
					   NULL };

static void add_text(struct buf *out, const char *text)
{
	buf_addc(out, '\t');
	for (; text && *text; text++)
		buf_addc(out, (unsigned char)*text < ' ' ? ' ' : *text);
	buf_addc(out, '\n');
}

void recording_begin(struct buf *out, uint64_t last_id, enum guard_mode mode)
{
	buf_addf(out, "begin\t%d\t%" PRIu64 "\t%s\n", RECORDING_FORM, last_id,
		 guard_modes[mode]);
}

void recording_policy(struct buf *out, const struct policy *p)
{
	policy_text_write(out, "policy\t", p);
	buf_adds(out, "policy\n");
}

void recording_state(struct buf *out, const struct guard *g)
{
	guard_state_write(out, "state\t", g);
}

void recording_swap(struct buf *out)
{
	buf_adds(out, "swap\n");
}

void recording_swapped(struct buf *out, enum guard_mode mode, uint64_t now_ns)
{
	buf_addf(out, "swapped\t%" PRIu64 "\t%s\n", now_ns, guard_modes[mode]);
}

static void add_record(struct buf *out, const struct guard_record *r)
{
	char mask[200];

	guard_mask_text(r->mask, ",", mask, sizeof(mask));
	buf_addf(out, "record\t%s\t%u\t%d\t%" PRIu64 "\t%s\t%" PRIu64 "\t%" PRIu64,
		 *mask ? mask : "-", r->level, r->evicted, r->need_bytes, guard_holds[r->hold],
		 r->hold_until_wall_ns, r->wall_ns);
	add_text(out, r->worker);
	if (r->manual_wall_ns)
		buf_addf(out, "record-manual\t%" PRIu64 "\n", r->manual_wall_ns);
	for (unsigned i = 0; i < r->gpus; i++) {
		buf_addf(out, "record-gpu\t%" PRIu64, r->gpu[i].need_bytes);
		add_text(out, r->gpu[i].uuid);
	}
	for (unsigned i = 0; i < r->put_away_count; i++)
		buf_addf(out, "record-process\t%" PRId64 "\t%" PRIu64 "\n", r->put_away[i].pid,
			 r->put_away[i].start_ticks);
	for (unsigned i = 0; i < r->roots; i++)
		buf_addf(out, "record-root\t%" PRId64 "\t%" PRIu64 "\n", r->root[i].pid,
			 r->root[i].start_ticks);
}

void recording_worker(struct buf *out, unsigned worker, const char *name,
		      const struct guard_record *record)
{
	buf_addf(out, "worker\t%u", worker);
	add_text(out, name);
	if (record)
		add_record(out, record);
}

void recording_outcome(struct buf *out, const struct guard_outcome *o, int worker,
		       uint64_t now_ns)
{
	buf_addf(out, "outcome\t%" PRIu64 "\t%d\t%d\t%d\t%d\t%d\t%d\t%d", now_ns, worker,
		 guard_outcome_ok(o) || o->ending == ENDING_IN_FLIGHT, o->ending == ENDING_BUSY,
		 o->ending == ENDING_IN_FLIGHT, o->ending == ENDING_NO_ANSWER,
		 o->ending == ENDING_LISTED, o->ending == ENDING_REFUSED);
	add_text(out, o->message);
}

void recording_fetched(struct buf *out, unsigned worker, uint64_t now_ns)
{
	buf_addf(out, "fetched\t%" PRIu64 "\t%u\n", now_ns, worker);
}

void recording_stop(struct buf *out, uint32_t underway, uint64_t now_ns)
{
	buf_addf(out, "stop\t%" PRIu64 "\t%" PRIu32 "\n", now_ns, underway);
}

void recording_request(struct buf *out, int worker, enum guard_request what, uint64_t ttl_ns,
		       uint64_t now_ns)
{
	buf_addf(out, "ask\t%" PRIu64 "\t%d\t%s\t%" PRIu64 "\n", now_ns, worker,
		 recording_requests[what], ttl_ns);
}

void recording_requester(struct buf *out, int64_t uid, uint64_t now_ns)
{
	buf_addf(out, "for\t%" PRIu64 "\t%" PRId64 "\n", now_ns, uid);
}

void recording_reason(struct buf *out, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns)
{
	buf_addf(out, "reason\t%" PRIu64 "\t%s\t%s\t%d", now_ns, gpu, guard_reason_name(r), on);
	add_text(out, evidence);
}

void recording_trust(struct buf *out, const char *gpu, uint64_t now_ns)
{
	buf_addf(out, "trust\t%" PRIu64, now_ns);
	add_text(out, gpu);
}

void recording_heat(struct buf *out, const char *gpu, unsigned heat, const char *why,
		    uint64_t now_ns)
{
	static const struct member set = { .kind = MEMBER_SET,
					   .size = sizeof(heat),
					   .names = guard_heats };

	buf_addf(out, "heat\t%" PRIu64 "\t%s\t", now_ns, gpu);
	member_add(out, &set, &heat);
	add_text(out, why);
}

void recording_foreign(struct buf *out, const char *gpu, const char *holder, uint64_t now_ns)
{
	buf_addf(out, "foreign\t%" PRIu64 "\t%s", now_ns, gpu);
	add_text(out, holder);
}

void recording_reserve(struct buf *out, const char *gpu, uint64_t bytes, int64_t pid,
		       uint64_t ttl_ns, uint64_t id, uint64_t now_ns)
{
	buf_addf(out, "reserve\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\t%" PRIu64 "\t%" PRIu64,
		 now_ns, bytes, pid, ttl_ns, id);
	add_text(out, gpu);
}

void recording_reserve_restore(struct buf *out, const struct guard_reservation *r)
{
	buf_addf(out, "room\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\t%" PRIu64, r->id, r->bytes,
		 r->pid, r->until_ns);
	add_text(out, r->gpu);
}

void recording_release(struct buf *out, uint64_t id, uint64_t now_ns)
{
	buf_addf(out, "release\t%" PRIu64 "\t%" PRIu64 "\n", now_ns, id);
}

void recording_games(struct buf *out, unsigned count, const struct scene_game *latest,
		     uint64_t now_ns)
{
	buf_addf(out, "games\t%" PRIu64 "\t%u\t%" PRId64, now_ns, count, latest->pid);
	add_text(out, latest->name);
}

/* Writes idle_w and reload_j as whole numbers. This is exact enough, because these figures
 * appear only in evidence. */
void recording_idle_economy(struct buf *out, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j, uint64_t now_ns)
{
	/* The reader of the recording takes a reload_j of 0 as unknown. */
	buf_addf(out, "economy\t%" PRIu64 "\t%u\t%" PRIu64 "\t%.0f\t%.0f\n", now_ns, worker,
		 after_ns, idle_w, isnan(reload_j) ? 0 : reload_j);
}

static int truncate_to(struct recording_file *r, uint64_t size)
{
	if (!r->regular || ftruncate(r->fd, (off_t)size) != 0)
		return -1;
	r->size = size;
	return 0;
}

/* Returns the end of the last whole line, or 0 if there is none. */
static uint64_t whole_lines(int fd, uint64_t size)
{
	char tail[4096];

	while (size) {
		size_t n = size < sizeof(tail) ? (size_t)size : sizeof(tail);

		if (pread(fd, tail, n, (off_t)(size - n)) != (ssize_t)n)
			return 0;
		for (; n && tail[n - 1] != '\n'; n--)
			size--;
		if (n)
			break;
	}
	return size;
}

/* If a killed service left an incomplete last line, removes it. Does not change a file that is
 * not a recording. */
static void remove_half_line(const char *path, struct recording_file *r)
{
	char first[sizeof("begin\t") - 1];
	int fd = r->regular && r->size ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	uint64_t end;

	if (fd < 0)
		return;
	if (pread(fd, first, sizeof(first), 0) == sizeof(first) &&
	    memcmp(first, "begin\t", sizeof(first)) == 0) {
		end = whole_lines(fd, r->size);
		if (end && end != r->size)
			(void)truncate_to(r, end);
	}
	close(fd);
}

/* Creates the file so that only its owner can read it, because it shows which programs users
 * run. */
int recording_file_open(struct recording_file *r, const char *path)
{
	struct stat st = { .st_size = 0 };
	int fd;

	/* Refuse such a path, because another user could make root append to any file. */
	if (file_is_unsafe_for_root(path)) {
		errno = EPERM;
		return -1;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) {
		close(fd);
		errno = EINVAL;
		return -1;
	}
	*r = (struct recording_file){ .fd = fd, .regular = S_ISREG(st.st_mode) };
	r->size = r->regular ? (uint64_t)st.st_size : 0;
	remove_half_line(path, r);
	return 0;
}

void recording_file_close(struct recording_file *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

/* Adds lines completely or not at all. Half a line would damage the lines that another run
 * adds. */
int recording_file_add(struct recording_file *r, const char *text, size_t size)
{
	int err;

	if (file_write_all(r->fd, text, size) == 0) {
		r->size += size;
		return 0;
	}
	err = errno;
	(void)truncate_to(r, r->size);
	errno = err;
	return -1;
}

bool recording_file_in_place(const struct recording_file *r, const char *path)
{
	struct stat here, there;

	return r->fd >= 0 && path && fstat(r->fd, &here) == 0 && stat(path, &there) == 0 &&
	       here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int recording_file_move(struct recording_file *r, const char *path)
{
	char old[PATH_MAX];
	int err = ENAMETOOLONG;

	if (snprintf(old, sizeof(old), "%s.1", path) < (int)sizeof(old)) {
		if (rename(path, old) == 0)
			return 0;
		err = errno;
	}
	(void)truncate_to(r, 0);
	errno = err;
	return -1;
}
