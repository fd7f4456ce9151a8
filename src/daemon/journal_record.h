/* journal_record: what the guard must remember over a crash, as a line of JSON for the store. */
#ifndef GW_DAEMON_JOURNAL_RECORD_H
#define GW_DAEMON_JOURNAL_RECORD_H

#include "guard/guard.h"
#include "guard/worker.h"
#include "serve/guard_view.h"

struct buf;

/* The id of this boot; "": unknown. */
void guard_record_boot(char out[static 64]);

/* What else is recorded of a worker. */
struct guard_record_more {
	char kind[24];                 /* "": unknown */
	bool past;                     /* of another boot; only read */
	char notes[WORKER_NOTES_SIZE]; /* of its adapter; may be "" */
};

/* A JSON object. */
void guard_record_write(struct buf *out, const struct guard_record *r,
			const struct guard_record_more *more);
/* Processes of another boot match no process.  0, or -GW_E_PARSE. */
int guard_record_read(const char *json, struct guard_record *ret,
		      struct guard_record_more *ret_more);

/* A reservation, with the start time of its owner and its end as wall time (0: none). */
struct guard_room_record {
	struct guard_reservation room; /* id, gpu, bytes and pid */
	uint64_t start_ticks, until_wall_ns;
};
void guard_room_write(struct buf *out, const struct guard_room_record *r);
int guard_room_read(const char *json, struct guard_room_record *ret); /* 0 or -GW_E_PARSE */

/* A registered game: a process with its start time.  Times are monotonic, and so of this boot. */
struct guard_game_record {
	struct guard_view_game game;
	uint64_t start_ticks;
};
void guard_game_write(struct buf *out, const struct guard_game_record *r);
/* 0, or -GW_E_PARSE, also for another boot. */
int guard_game_read(const char *json, struct guard_game_record *ret);

#endif
