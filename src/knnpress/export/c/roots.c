/* Square roots of the bins. */
static void kp_embed(const double *point, double *vector) {
  int k;
  for (k = 0; k < KP_D; k++) vector[k] = sqrt(point[k]);
}
