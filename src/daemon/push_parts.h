/* push_parts: declarations that push.c and push_threads.c share. push.c runs on the main
 * thread: settings, records, log. push_threads.c has the threads that write to the queue and
 * send. */
#ifndef GW_DAEMON_PUSH_PARTS_H
#define GW_DAEMON_PUSH_PARTS_H

#include "push.h"
#include "push_queue.h"

#include "base/mailbox.h"
#include "serve/view.h"

#define PUSH_PENDING_MAX 64 /* Maximum number of pages in memory while the disk hangs. */
#define PUSH_STOP_NS     (2 * NS_PER_S)

/* A record outside the queue. It owns its payload. */
struct push_pending {
	struct push_record r;
	char *p; /* The payload. NULL if there is no record. */
};

/* The writer pauses the sender to change the settings. */
enum push_sender_state { PUSH_SENDS, PUSH_PAUSES, PUSH_PAUSED };

struct push {
	struct push_config config; /* Used by the main thread only. */
	_Atomic uint64_t until_ns; /* A running request is cancelled at this monotonic time. */

	/* Used by the main thread only. */
	struct {
		struct push_settings settings;
		struct loop_source *timer;
		struct push_encoder *encoder; /* NULL if nothing is pushed. */
		uint64_t due_ns;              /* Monotonic time of the next record. */
		int64_t last_ms;              /* Wall time of the last record. */
		uint32_t samples;             /* Number of samples in the last record. */
		struct log_latch problem, queue_problem, clock_back;
		uint64_t refusal_ns; /* Monotonic time at which the last refusal was logged. */
		uint64_t chance;     /* State of the random numbers. */
		struct view_push shown;
	} main;

	struct mailbox writer; /* The lock of this mailbox protects the next four members. */
	struct push_pending pending[PUSH_PENDING_MAX];
	unsigned waiting;
	struct push_settings *next; /* Settings to change to. NULL if there are none. */
	/* Number of pending records that still belong to the settings before `next`. */
	unsigned before_next;

	struct mailbox sender; /* The lock of this mailbox protects the next eight members. */
	enum push_sender_state state;
	struct push_queue *queue; /* NULL if the queue is not open. */
	struct view_push status;
	char refusal[600]; /* Why samples were last dropped. "" if that is already logged. */
	/* Events of the queue that are not logged yet, one line per event. */
	char notice[1000];
	/* Wall time of the last record in a queue that was just opened, for the main thread. 0
	 * if there was no record, or after the main thread has taken the time. */
	int64_t opened_ms;
	/* The newest record, if it could not be written to the disk. The sender sends this
	 * record from memory. */
	struct push_pending loose;
	/* Number of dropped samples. Does not include the samples that the queue dropped. */
	uint64_t dropped;

	/* Used by both threads. The writer changes the settings only while the sender
	 * pauses. */
	struct push_settings settings;
	struct {
		struct push_http *http; /* NULL until the first request. */
		unsigned failures;      /* Number of failed requests in a row. */
		/* Number of records to send one by one, after a batch of them was refused. */
		unsigned singles;
		uint64_t retry_ns; /* No request is sent before this time. 0 means now. */
		uint64_t chance;   /* State of the random numbers. */
	} send;
};

/* Returns a number from 0 to 1. */
double push_chance(uint64_t *state);

/* Counts samples that were dropped. why is the reason for the log. If why is "", nothing is
 * logged. */
void push_note_dropped(struct push *p, uint64_t samples, const char *why);

void push_writer_run(void *arg);
void push_sender_run(void *arg);

/* Closes the queue and the connection. Call it on the writer thread, or after the threads have
 * ended. */
void push_close(struct push *p);

#endif
