/* push_parts: declarations that push.c and push_threads.c share. push.c runs on the main
 * thread: settings, records, log. push_threads.c has the threads that write to the queue and
 * send. */
#ifndef GW_DAEMON_PUSH_PARTS_H
#define GW_DAEMON_PUSH_PARTS_H

#include "push.h"
#include "push_queue.h"

#include "base/mailbox.h"
#include "serve/view.h"

#define PUSH_PENDING_MAX 64 /* maximum number of pages in memory while the disk hangs */
#define PUSH_STOP_NS     (2 * NS_PER_S)

/* A record outside the queue; it owns its payload. */
struct push_pending {
	struct push_record r;
	char *p; /* the payload; NULL: there is no record */
};

/* The writer pauses the sender to change the settings. */
enum push_sender_state { PUSH_SENDS, PUSH_PAUSES, PUSH_PAUSED };

struct push {
	struct push_config config; /* main thread only */
	_Atomic uint64_t until_ns; /* a request ends at this time at the latest */

	struct { /* main thread only */
		struct push_settings settings;
		struct loop_source *timer;
		struct push_encoder *encoder; /* NULL: nothing is pushed */
		uint64_t due_ns;              /* monotonic time of the next record */
		int64_t last_ms;              /* wall time of the last record */
		uint32_t samples;             /* number of samples in the last record */
		struct log_latch problem, queue_problem, clock_back;
		uint64_t refusal_ns; /* when the last refusal was logged */
		uint64_t chance;     /* state of the random numbers */
		struct view_push shown;
	} main;

	struct mailbox writer; /* its lock protects the next four members */
	struct push_pending pending[PUSH_PENDING_MAX];
	unsigned waiting;
	struct push_settings *next; /* settings to change to; NULL: none */
	unsigned
		before_next; /* number of pending records that still belong to the settings before `next` */

	struct mailbox sender; /* its lock protects the next eight members */
	enum push_sender_state state;
	struct push_queue *queue; /* NULL: not open */
	struct view_push status;
	char refusal[600]; /* why samples were last dropped; "": already logged */
	char notice[1000]; /* lines: what happened to the queue; "": already logged */
	int64_t opened_ms; /* newest time in a queue that was just opened; 0: none */
	struct push_pending
		loose; /* the newest record, if it could not be written to the disk: sent from memory */
	/* number of dropped samples, without those that the queue dropped */
	uint64_t dropped;

	/* The threads use these; the writer changes them while the sender pauses. */
	struct push_settings settings;
	struct {
		struct push_http *http; /* NULL: none yet */
		unsigned failures;      /* failed requests in a row */
		unsigned
			singles; /* number of records to send one by one, after a batch of them was refused */
		uint64_t retry_ns; /* no request before this time; 0: now */
		uint64_t chance;   /* state of the random numbers */
	} send;
};

/* Returns a number from 0 to 1. */
double push_chance(uint64_t *state);

/* Counts samples that were dropped. why: for the log; "": not logged. */
void push_note_dropped(struct push *p, uint64_t samples, const char *why);

void push_writer_run(void *arg);
void push_sender_run(void *arg);

/* Closes the queue and the connection. Call it on the writer thread, or after the threads have
 * ended. */
void push_close(struct push *p);

#endif
