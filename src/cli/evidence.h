/* evidence: a bundle or a result file, opened for looking at.
 *
 * A bundle is read as far as it goes: its result.json, or, where that is not there or cannot be
 * read, what its readings give (bundle_rebuild.h).  What was wrong with it is kept as
 * sentences; only where nothing can be read at all is it refused. */
#ifndef GW_CLI_EVIDENCE_H
#define GW_CLI_EVIDENCE_H

#include "bundle_rebuild.h"
#include "result.h"

#define EVIDENCE_NOTES 6
#define EVIDENCE_NOTE  5200

struct evidence {
	const char *path; /* as given, borrowed */
	struct result result;
	bool bundle;         /* a folder; else a result file                        */
	bool read;           /* its readings could be: `made` is what they gave     */
	bool bundle_rebuilt; /* and result is of them, for want of a result.json    */
	struct bundle_rebuilt made;
	char file[4200]; /* result.json of a bundle */
	char note[EVIDENCE_NOTES][EVIDENCE_NOTE];
	unsigned notes;
};

/* 0 and evidence_close() ends it; -1 with a sentence in message. */
int evidence_open(struct evidence *e, const char *path, char *message, size_t size);
void evidence_close(struct evidence *e);

#endif
