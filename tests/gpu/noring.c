/* noring: the driver's library with its power ring taken away, so that gpuward polls on a card that
 * has one.  Linked with the real library, which answers everything else. */
int nvmlDeviceGetSamples(void);

int nvmlDeviceGetSamples(void)
{
	return 3; /* NOT_SUPPORTED */
}
