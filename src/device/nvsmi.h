/* nvsmi: declarations that the files of the nvidia-smi backend share.
 *
 * nvsmi.c runs the program and stores its output; nvsmi_stream.c keeps one nvidia-smi process
 * running for power samples; nvsmi_text.c parses the output and has no state, so that it can be
 * tested and fuzzed with text alone. */
#ifndef GW_DEVICE_NVSMI_H
#define GW_DEVICE_NVSMI_H

#include "backend.h"

#include "base/child.h"
#include "base/clock.h"

/* Each column is requested by its name. If the driver refuses the name, the older name is used;
 * if the driver refuses that too, the column is not requested. */
#define NVSMI_COLUMNS 56
enum nvsmi_name { NVSMI_NEW, NVSMI_OLD, NVSMI_NONE };

/* These columns identify the GPU of a row. They are requested before all others, in this
 * order. */
enum { NVSMI_INDEX, NVSMI_UUID, NVSMI_PCI, NVSMI_IDS };
#define NVSMI_FIELDS (NVSMI_IDS + NVSMI_COLUMNS)

unsigned nvsmi_column_count(void);

/* Returns the new or the old name of column c; NULL if the column has no such name. */
const char *nvsmi_column_name(unsigned c, enum nvsmi_name which);
unsigned nvsmi_column_tiers(unsigned c); /* the tiers that need column c */

/* Splits a CSV line in place; removes quotes and blanks around fields. Fills at most cap fields
 * and returns how many there are. */
unsigned nvsmi_split(char *line, char **fields, unsigned cap);

/* Stores a field in the report: the value, or why there is none. */
void nvsmi_apply(struct report *r, unsigned c, const char *field);

/* Returns GW_HAVE if a field has a value, otherwise the meaning of its "[N/A]" or "[...]". */
enum gw_absence nvsmi_absence(const char *field);

/* Returns the cause that an error text describes, or GW_CAUSE_NONE if the text is unknown. */
enum gw_cause nvsmi_cause(const char *text);

/* Writes the name of the column that the driver does not know, from the error message of the
 * driver. Returns false if the text is no such message. */
bool nvsmi_refused(const char *text, char *out, size_t size);

/* The stream: one nvidia-smi process that prints a line per GPU ten times per second. Starting
 * nvidia-smi for each sample costs 22 ms of CPU per sample and gives at most 8 samples per
 * second; a process that keeps running (-lms) gives all ten (measured). nvsmi_stream.c starts
 * the process, reads its output without waiting, notices when it stops printing, and delays a
 * restart. It is not thread-safe: its only caller, nvsmi.c, holds a lock. */

#define NVSMI_INTERVAL_NS   (100 * NS_PER_MS)
#define NVSMI_STREAM_FIELDS 40

/* Statistics of the nvidia-smi backend since it was opened. */
struct nvsmi_facts {
	uint64_t lines;  /* number of lines that were parsed */
	uint64_t starts; /* how often the process was started */
	uint64_t stalls; /* number of processes that we ended because they stopped printing */
	uint64_t ends;   /* number of processes that ended on their own */
	uint64_t runs;   /* number of single runs for a power sample, while the stream fails */
	uint64_t child_cpu_ns; /* CPU time of the processes */
	/* number of all single runs: for power samples, for other values and for process
	 * lists */
	uint64_t programs;
	uint64_t program_ns; /* total duration of all single runs */
};

struct nvsmi_stream {
	struct child child;
	bool running;          /* The process runs. */
	bool no_instant;       /* The program does not know the column power.draw.instant. */
	bool zone_known;       /* zone_us is valid */
	uint64_t last_line_ns; /* time of the last line, or of the start if there is none */
	uint64_t retry_ns;     /* The process is not started again before this time. */
	uint64_t backoff_ns;   /* present delay of a restart */
	uint64_t lines;        /* number of lines that the running process has printed */
	uint64_t ended_cpu_ns; /* CPU time of the earlier processes */
	uint64_t first_line_timeout_ns; /* how long to wait for the first line */
	int64_t zone_us;                /* UTC minus the time that the program prints */
	struct nvsmi_facts facts;
	/* Further columns, each after a comma. The caller sets them before it starts the
	 * process. */
	char more[768];
	unsigned mores;  /* number of further columns */
	char query[900]; /* the --query-gpu option, made from the columns */
	char text[1024]; /* the last line; nvsmi_reading points into it */
	char *fields[NVSMI_STREAM_FIELDS];
};

/* The contents of one line: the GPU, the time and the power. The time is from the timestamp
 * column, because several lines are read at once. The column is local time without a zone. The
 * process is started with TZ=UTC. If the process ignores TZ, the zone is the difference between
 * its first line and our wall clock, rounded to quarter hours. */
struct nvsmi_reading {
	const char *uuid,
		*pci; /* valid until the next call, because they point into the stream */
	uint64_t wall_us;
	double instant_w, power_w; /* NAN: the line has no value */
	enum gw_absence why;       /* why both power values are NAN; GW_HAVE: at least one of
				    * them has a value */
	/* The fields of the further columns. NULL: the line is from a single run. */
	char *const *more;
};

void nvsmi_stream_init(struct nvsmi_stream *s);

/* Returns the --query-gpu option for the lines of the stream. If `more` is set, the option
 * includes the further columns. */
const char *nvsmi_stream_query(struct nvsmi_stream *s, bool more);

/* Starts the process, unless the process already runs or the restart is delayed. The caller
 * decides whether the process may be started. Returns true if the process runs.
 *
 * The process does not outlive us: after our end, the pipe of the process has no reader, so
 * SIGPIPE ends the process when it writes its next line. PR_SET_PDEATHSIG is not used, because
 * it would end the process together with the thread that started it. A process that hangs in
 * the driver stays until the driver returns. */
bool nvsmi_stream_start(struct nvsmi_stream *s, const char *program, uint64_t now_ns,
			uint64_t first_line_timeout_ns);

/* Returns the next reading that has arrived; never waits. Returns false if there is none; the
 * process may have ended then. */
bool nvsmi_stream_next(struct nvsmi_stream *s, uint64_t now_ns, uint64_t wall_us,
		       struct nvsmi_reading *ret);

/* Parses one line of this process (`more` is true) or of a single run (`more` is false).
 * Returns false if the line is not a reading. */
bool nvsmi_stream_parse(struct nvsmi_stream *s, const char *line, bool more, uint64_t wall_us,
			struct nvsmi_reading *ret);

/* Ends the process, which may be started again at once. */
void nvsmi_stream_stop(struct nvsmi_stream *s);

/* Statistics of an open nvidia-smi backend. Thread-safe; never waits: returns false if the
 * program runs right now, or if b is not that backend. */
bool nvsmi_facts(struct backend *b, struct nvsmi_facts *ret);

#endif
