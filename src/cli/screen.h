/* screen: a picture that is drawn again and again on a terminal.
 *
 * It has the terminal's other screen, so that what was there before is there after, and shows
 * as many lines as fit.  Ctrl-C and SIGTERM end it; the last picture then stays. */
#ifndef GW_CLI_SCREEN_H
#define GW_CLI_SCREEN_H

#include <stdbool.h>

/* False: standard output is no terminal that can do this. */
bool screen_begin(void);

/* What is printed between the two is one picture. */
void screen_frame_begin(void);
void screen_frame_end(void);

/* Was it asked to end? */
bool screen_ended(void);

void screen_end(void);

#endif
