/* journal_record: writes and reads what the guard must remember over a crash, as lines of JSON
 * in the store. */
#ifndef GW_DAEMON_JOURNAL_RECORD_H
#define GW_DAEMON_JOURNAL_RECORD_H

#include "guard/guard.h"
#include "guard/worker.h"
#include "serve/guard_view.h"

struct buf;

/* What is recorded about a worker in addition to struct guard_record. */
struct guard_record_more {
	char kind[24]; /* Kind of the worker. "" if it is unknown. */
	/* The record is from another boot. Set when the record is read, never written. */
	bool past;
	/* Who requested the last hold or eviction, and why. "" if that is unknown. */
	char requested_by[256];
	/* Restore data in the format of the worker's kind. May be "". */
	char notes[WORKER_NOTES_SIZE];
};

/* Writes a JSON object. */
void guard_record_write(struct buf *out, const struct guard_record *r,
			const struct guard_record_more *more);
/* Reads a record. Processes from another boot are changed so that they match no process.
 * Returns 0 or -GW_E_PARSE. */
int guard_record_read(const char *json, struct guard_record *ret,
		      struct guard_record_more *ret_more);

/* A reservation with the start time of its owner process, the wall time of its end, the wall
 * time of the record, and the key of the request that made it. The wall time of its end is 0 if
 * the reservation has no end; that of a record of an earlier version is 0. */
struct guard_room_record {
	struct guard_reservation room; /* Stored: id, gpu, bytes, pid and uid. */
	uint64_t start_ticks, until_wall_ns, wall_ns;
	struct guard_view_key key;
	bool granted; /* see struct guard_view_room */
};
void guard_room_write(struct buf *out, const struct guard_room_record *r);
/* Returns 0 or -GW_E_PARSE. */
int guard_room_read(const char *json, struct guard_room_record *ret);

/* A registered game: a process with its start time. Times are monotonic, so they are only valid
 * within this boot. */
struct guard_game_record {
	struct guard_view_game game;
	uint64_t start_ticks;
};
void guard_game_write(struct buf *out, const struct guard_game_record *r);
/* Reads a game. Returns 0, or -GW_E_PARSE if the text is invalid or the game is from another
 * boot. */
int guard_game_read(const char *json, struct guard_game_record *ret);

#endif
