/* nvsmi_stream: one nvidia-smi that prints a line for each GPU ten times a second.
 *
 * A run costs 22 ms of CPU and delivers 8 samples a second at best; a program that is left
 * running (-lms) delivered every one of them (measured: 80 lines in 8 s through a pipe).  This
 * file starts it, reads what it says without ever waiting, sees when it has gone silent and
 * does not start it again at once.
 *
 * Stamps are those of its timestamp column: several lines are read at one go, so the moment of
 * reading says little.  The column is local time without a zone; the program is started with
 * TZ=UTC, and where it does not listen to that the quarter hours between its first line and
 * our wall clock are taken for its zone.  Like the stamps of the driver's own ring they move
 * with the wall clock.
 *
 * It does not survive us: the only reader of its pipe is this process, and -lms ends by SIGPIPE
 * at its next line.  PR_SET_PDEATHSIG would end it with the thread that started it.  What hangs in
 * the driver and prints nothing stays until the driver lets it go, as with any program.
 *
 * Not thread-safe: the owner has a lock. */
#ifndef GW_DEVICE_NVSMI_STREAM_H
#define GW_DEVICE_NVSMI_STREAM_H

#include "base/child.h"
#include "base/clock.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

#define NVSMI_INTERVAL_NS (100 * NS_PER_MS)

/* What has become of it, for reports. */
struct nvsmi_facts {
	uint64_t lines;        /* with a stamp and a GPU                              */
	uint64_t garbage;      /* lines that make no sense                            */
	uint64_t starts;       /* of the program that stays; all but one are restarts */
	uint64_t stalls;       /* it was ended because no line came for 10 intervals  */
	uint64_t ends;         /* it ended by itself                                  */
	uint64_t runs;         /* of one program per sample, while it does not work   */
	uint64_t run_ns;       /* how long these took, all together                   */
	uint64_t child_cpu_ns; /* CPU time of the programs that stayed                */
	bool streaming;        /* it is running now                                   */
};

struct nvsmi_stream {
	struct child child;
	bool running, no_instant, zoned;
	uint64_t heard_ns; /* the last line, or the start                          */
	uint64_t retry_ns, backoff_ns;
	uint64_t lines;        /* of this child                                      */
	uint64_t ended_cpu_ns; /* of the children before it                          */
	uint64_t patience_ns;  /* for the first line                                 */
	int64_t zone_us;
	struct nvsmi_facts facts;
	char text[512]; /* the line that the last reading points into          */
};

/* One line: who, when, how much. */
struct nvsmi_reading {
	const char *uuid, *pci; /* in the stream's memory, until the next call          */
	uint64_t wall_us;
	double instant_w, power_w; /* NAN: it has none                                 */
	enum gw_absence why;       /* of both being NAN, else GW_HAVE                   */
};

void nvsmi_stream_init(struct nvsmi_stream *s);

/* The --query-gpu of its lines. */
const char *nvsmi_stream_query(const struct nvsmi_stream *s);

/* Starts it, unless it is running or not due.  May it be started is the caller's question.
 * patience_ns: what the first line may take.  True: it is running. */
bool nvsmi_stream_start(struct nvsmi_stream *s, const char *program, uint64_t now_ns,
			uint64_t patience_ns);

/* The next reading that has come in; never waits.  False: none, and perhaps it runs no more. */
bool nvsmi_stream_next(struct nvsmi_stream *s, uint64_t now_ns, uint64_t wall_us,
		       struct nvsmi_reading *ret);

/* What one line says, of this or of a program that ran for one sample.  False: nothing. */
bool nvsmi_stream_parse(struct nvsmi_stream *s, const char *line, uint64_t wall_us,
			struct nvsmi_reading *ret);

/* Ends it.  It may be started again at once. */
void nvsmi_stream_stop(struct nvsmi_stream *s);

#endif
