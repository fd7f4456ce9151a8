/* fake_checkpoint: what a test and its fake libcuda.so.1 exchange: which calls must fail, and
 * which calls were made. It is the symbol fake_checkpoint of the library. */
#ifndef TESTS_FAKE_CHECKPOINT_H
#define TESTS_FAKE_CHECKPOINT_H

#define FAKE_PROCESSES 8

struct fake_checkpoint {
	struct {
		int pid;
		int state;
		int fail_lock, fail_put_away, fail_restore, fail_unlock, fail_state;
	} process[FAKE_PROCESSES];
	unsigned timeout_ms; /* timeout of the last lock call */
	/* a checkpoint or a restore ends only when this many of them have begun; 0: at once */
	unsigned together;
	unsigned underway; /* checkpoints and restores that have begun */
	char calls[512];   /* the calls so far, such as "lock 12, checkpoint 12, " */
};

#endif
