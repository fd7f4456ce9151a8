/* guard_record: what the guard must remember over a crash, as a line of text for the store. */
#ifndef GW_DAEMON_JOURNAL_RECORD_H
#define GW_DAEMON_JOURNAL_RECORD_H

#include "guard/guard.h"
#include "guard/worker.h"
#include "serve/guard_view.h"

struct buf;

/* Of this start of the machine; "" where the kernel does not tell. */
void guard_record_boot(char out[static 64]);

/* Of a worker, beside what the guard knows of it. */
struct guard_record_more {
	char kind[24];                 /* "": it was not told */
	bool past;                     /* of another start of the machine; only read */
	char notes[WORKER_NOTES_SIZE]; /* of its adapter; may be "" */
};

/* A JSON object whose texts are escaped. */
void guard_record_write(struct buf *out, const struct guard_record *r,
			const struct guard_record_more *more);
/* Processes of another start of the machine are nobody.  0, or -GW_E_PARSE. */
int guard_record_read(const char *json, struct guard_record *ret,
		      struct guard_record_more *ret_more);

/* A reservation: its owner is a process that began then, its end a time on the wall (0: none). */
struct guard_room_record {
	struct guard_reservation room; /* id, gpu, bytes and pid */
	uint64_t start_ticks, until_wall_ns;
};
void guard_room_write(struct buf *out, const struct guard_room_record *r);
int guard_room_read(const char *json, struct guard_room_record *ret); /* 0 or -GW_E_PARSE */

/* One who plays: a process that began then.  Times are monotonic, and so of this start of the machine. */
struct guard_game_record {
	struct guard_view_game game;
	uint64_t start_ticks;
};
void guard_game_write(struct buf *out, const struct guard_game_record *r);
/* 0, or -GW_E_PARSE: of another start of the machine, too. */
int guard_game_read(const char *json, struct guard_game_record *ret);

#endif
