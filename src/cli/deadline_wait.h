/* patience: how long an answer is waited for.
 *
 * Until its time is up; and where somebody asks us to end meanwhile (Ctrl-C) only a moment
 * longer: an answer that is on its way is still taken, a server that is silent does not keep
 * anybody. */
#ifndef GW_CLI_DEADLINE_WAIT_H
#define GW_CLI_DEADLINE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* Who may ask us to end. */
struct deadline_wait_asker {
	bool (*asked)(void *arg); /* did he? */
	void *arg;
	int fd; /* readable: ask him again */
};

struct deadline_wait {
	uint64_t until_ns;                       /* monotonic */
	const struct deadline_wait_asker *asker; /* NULL: nobody, or he did and was heard */
	bool lost;                               /* he did */
};

void deadline_wait_begin(struct deadline_wait *p, uint64_t most_ns,
			 const struct deadline_wait_asker *asker);

/* Asks him, and shortens the time where he did. */
void deadline_wait_look(struct deadline_wait *p);

/* Waits for events of fd.  0, -GW_E_IO, or as deadline_wait_error(). */
int deadline_wait_wait(struct deadline_wait *p, int fd, short events);

/* What it is when the time is up: -GW_E_TIMEOUT, or -GW_E_STATE: somebody asked us to end. */
int deadline_wait_error(const struct deadline_wait *p);

#endif
