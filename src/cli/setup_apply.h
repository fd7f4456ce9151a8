/* setup_apply: carries out the steps of a plan of `gpuward setup`, and undoes them.
 *
 * Each step is written to the manifest, /etc/gpuward/setup.json, before the step is done, with
 * a checksum of each file.  So undo removes exactly what setup wrote, even if setup was
 * interrupted.  Each file is complete or absent, and steps in a user's home are done as that
 * user and follow no link. */
#ifndef GW_CLI_SETUP_APPLY_H
#define GW_CLI_SETUP_APPLY_H

#include "setup_files.h"
#include "setup_plan.h"

#define SETUP_MANIFEST SETUP_FOLDER "/setup.json"

/* What setup wrote earlier. */
struct setup_manifest;

/* Loads the manifest; it is empty if there is none, or if a user who only reads the plan may not
 * read it.  Returns an exit code; an error has been printed, and *ret is unchanged. */
int setup_manifest_load(const struct setup_place *at, struct setup_manifest **ret);
void setup_manifest_free(struct setup_manifest *m);

/* Returns who wrote the file at path; SETUP_OURS: the manifest lists the file, and it is
 * unchanged. */
enum setup_file setup_look(const struct setup_place *at, struct setup_manifest *m,
			   const char *path);
/* Works like setup_look() for a file below the user's home, which is read as that user:
 * SETUP_OURS if the file has this text. */
enum setup_file setup_look_user(const struct setup_place *at, const char *path,
				const char *text);

/* Carries out the plan and adds each step to the manifest.  Prints each step unless quiet.
 * Returns an exit code. */
int setup_apply(const struct setup_place *at, struct setup_manifest *m,
		const struct setup_plan *p, bool quiet);

/* Sets *ret to true if there is a manifest with steps.  Returns an exit code; prints errors. */
int setup_is_done(const struct setup_place *at, bool *ret);

/* Removes the files and folders that the manifest lists, or with dry_run only prints them.  A
 * file that was changed since setup is kept, and its name is printed.  If something cannot be
 * removed, it stays in the manifest, and the undo fails.  Returns an exit code. */
int setup_undo(const struct setup_place *at, bool quiet, bool dry_run);

#endif
