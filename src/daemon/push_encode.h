/* push_encode: turns the samples of one metrics page into one record of the push queue. In the
 * push, a sample is one value of one series, as in Prometheus.
 *
 * The samples come from metrics_each(), so that a record has exactly the series of /metrics. If
 * a series of the previous record is missing in the new record, the new record gets a staleness
 * marker for it, as Prometheus writes one after a scrape. */
#ifndef GW_DAEMON_PUSH_ENCODE_H
#define GW_DAEMON_PUSH_ENCODE_H

#include "serve/metrics_text.h"

#include <stdint.h>

/* The queue stores these numbers. */
enum push_protocol { PUSH_REMOTE_WRITE = 1, PUSH_OTLP = 2 };

#define PUSH_LABELS_MAX 16
#define PUSH_TEXT_MAX   256

/* The labels that every series gets in addition to its own labels. With OTLP, these are
 * attributes of the resource (service.name, service.instance.id, host.name and the labels). */
struct push_identity {
	char job[PUSH_TEXT_MAX], instance[PUSH_TEXT_MAX], host[PUSH_TEXT_MAX];
	struct {
		char name[PUSH_TEXT_MAX], value[PUSH_TEXT_MAX];
	} label[PUSH_LABELS_MAX];
	unsigned labels;
};

/* One page as the queue stores it. */
struct push_record {
	enum push_protocol protocol;
	int64_t time_ms;
	uint32_t samples;
	uint32_t raw_bytes; /* Size of the payload before compression. */
	/* The payload. Remote write: elements of Snappy, without the length. OTLP: gzip. */
	const char *p;
	size_t n;
};

struct push_encoder;

/* start_ns is the wall time at which the counters of OTLP begin. id is borrowed. Returns 0
 * or -GW_E_NOMEM. */
int push_encoder_new(enum push_protocol protocol, const struct push_identity *id,
		     uint64_t start_ns, struct push_encoder **ret);
void push_encoder_free(struct push_encoder *e);

/* Begins the record of a page. */
void push_encoder_begin(struct push_encoder *e, int64_t time_ms);

/* Adds a sample. The function is a callback for struct metrics_sink; arg is the encoder.
 * Ignores a second sample of the same series in one record, because a server would refuse the
 * whole request. */
void push_encoder_sample(void *arg, const struct metric *m, const char *base, const char *more,
			 double value);

/* Adds the staleness markers and compresses the record. *ret is valid until the next begin.
 * Returns 0, -GW_E_NOMEM or -GW_E_SIZE (the page is too large). A page without any sample marks
 * all series stale; the service makes such a page when the service ends. */
int push_encoder_end(struct push_encoder *e, struct push_record *ret);

/* Returns the time for a record, or -1 if no record may be made. The times of records never go
 * back. If the clock was set back, no record is made until the clock has passed the time of the
 * last record. But if the last record is more than an hour ahead of the clock, its time was
 * wrong, and the time of the clock is used. */
#define PUSH_CLOCK_BACK_MS (3600 * INT64_C(1000))
int64_t push_time(int64_t last_ms, int64_t wall_ms);

/* Reads the answer of an OTLP server. Returns the number of samples that the server rejected,
 * with the server's sentence in message. Returns 0 if the server rejected no sample. */
uint64_t push_otlp_rejected(const char *p, size_t n, char *message, size_t size);

#endif
