/* setup_apply: carries out the steps of a plan of `gpuward setup`, and undoes them. Before each
 * step, an entry is added to the manifest, /etc/gpuward/setup.json, with a checksum if the step
 * writes a file. Therefore the undo removes exactly what setup wrote, even if setup was
 * interrupted. A file is never written in part. Steps in the home folder of a user have only
 * the rights of that user and follow no link. */
#ifndef GW_CLI_SETUP_APPLY_H
#define GW_CLI_SETUP_APPLY_H

#include "setup_files.h"
#include "setup_plan.h"

#define SETUP_MANIFEST SETUP_FOLDER "/setup.json"

/* The list of what setup wrote earlier. */
struct setup_manifest;

/* Loads the manifest. It is empty if the file does not exist, or if this user is not root and
 * may not read it. Returns an exit code. After EXIT_OK, the caller frees *ret with free();
 * after an error, *ret is unchanged. */
int setup_manifest_load(const struct setup_place *at, struct setup_manifest **ret);

/* Returns who wrote the file at path. SETUP_OURS means that the manifest lists the file and
 * that the file is unchanged. */
enum setup_file setup_look(const struct setup_place *at, struct setup_manifest *m,
			   const char *path);
/* Does the same for a file in the home folder of the user, with the rights of that user.
 * Returns SETUP_OURS if the file has exactly this text. */
enum setup_file setup_look_user(const struct setup_place *at, const char *path,
				const char *text);

/* Carries out the plan and adds each step to the manifest. Prints each step unless `quiet` is
 * set. Returns an exit code. */
int setup_apply(const struct setup_place *at, struct setup_manifest *m,
		const struct setup_plan *p, bool quiet);

/* Sets *ret to true if the manifest has at least one entry. Returns an exit code. */
int setup_is_done(const struct setup_place *at, bool *ret);

/* Removes the files and folders that the manifest lists; with dry_run, only prints them. A file
 * that was changed after setup wrote it is kept, and its path is printed. If something cannot
 * be removed, its entry stays in the manifest, and the function fails. Returns an exit code. */
int setup_undo(const struct setup_place *at, bool quiet, bool dry_run);

#endif
