/* placeholder */
#include "simtest.h"
int main(void) { (void)sim_setup; return 0; }
