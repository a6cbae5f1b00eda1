/* The covariance of a window, shrunk by as much as its own samples call for, is compared in place of a matrix. */
int knnpress_predict_window(const double *samples, int n_samples, double *probabilities) {
  double x[KP_D * KP_D], mean[KP_D];
  const double *a, *b;
  int i, j, t;
  if (n_samples < 2) return -1;
  for (i = 0, a = samples; i < KP_D; i++, a += n_samples) {
    for (t = 0, mean[i] = 0.0; t < n_samples; t++) mean[i] += a[t];
    mean[i] /= n_samples;
  }
  for (i = 0, a = samples; i < KP_D; i++, a += n_samples)
    for (j = 0, b = samples; j <= i; j++, b += n_samples) {
      double sum = 0.0;
      for (t = 0; t < n_samples; t++) sum += (a[t] - mean[i]) * (b[t] - mean[j]);
      x[i * KP_D + j] = x[j * KP_D + i] = sum / n_samples;
    }
#ifndef KP_EMPIRICAL
  {
    double squares = 0.0, variance = 0.0, share; /* of all entries, and the mean of the channels' variances */
    for (i = 0; i < KP_D; i++) variance += x[i * KP_D + i] / KP_D;
    for (i = 0; i < KP_D * KP_D; i++) squares += x[i] * x[i];
    if (!(squares <= DBL_MAX)) return -1;
#ifdef KP_OAS
    {
      const double of_entry = squares / (KP_D * KP_D), spread = of_entry - variance * variance / KP_D;
      share = spread > 0.0 ? (of_entry + variance * variance) / ((n_samples + 1.0) * spread) : 1.0;
    }
#else /* Ledoit and Wolf */
    {
      const double spread = squares - KP_D * variance * variance; /* from a multiple of the identity */
      double noise = 0.0;
      for (t = 0; t < n_samples; t++) {
        double length = 0.0;
        for (i = 0, a = samples; i < KP_D; i++, a += n_samples) length += (a[t] - mean[i]) * (a[t] - mean[i]);
        noise += length * length / n_samples;
      }
      noise = (noise - squares) / n_samples;
      share = noise > 0.0 ? noise / spread : 0.0;
    }
#endif
    if (!(share < 1.0)) share = 1.0;
    for (i = 0; i < KP_D; i++)
      for (j = 0; j < KP_D; j++) x[i * KP_D + j] = (1.0 - share) * x[i * KP_D + j] + (i == j ? share * variance : 0.0);
  }
#endif
  return knnpress_predict(x, probabilities);
}
