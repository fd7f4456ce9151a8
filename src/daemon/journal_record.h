/* journal_record: writes and reads what the guard must remember over a crash, as lines of JSON
 * in the store. */
#ifndef GW_DAEMON_JOURNAL_RECORD_H
#define GW_DAEMON_JOURNAL_RECORD_H

#include "guard/guard.h"
#include "guard/worker.h"
#include "serve/guard_view.h"

struct buf;

/* The part of a worker's record that struct guard_record does not have. */
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
/* Reads a record. If the record is from another boot, changes the processes in *ret so that
 * they match no running process. Returns 0 or -GW_E_PARSE. */
int guard_record_read(const char *json, struct guard_record *ret,
		      struct guard_record_more *ret_more);

/* A reservation in the store. */
struct guard_room_record {
	struct guard_reservation room; /* Only id, gpu, bytes, pid and uid are stored. */
	uint64_t start_ticks;          /* Start time of the owner process. */
	uint64_t until_wall_ns;        /* Wall time of the end. 0 if there is no end. */
	/* Wall time at which the record was written. 0 if an earlier version wrote it. */
	uint64_t wall_ns;
	struct guard_view_key key; /* Key of the request that made the reservation. */
	bool granted;              /* see struct guard_view_room */
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
