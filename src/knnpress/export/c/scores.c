#define KP_UNSURE -2

/* Log-odds of each class: of its nearest prototype, or (KP_SOFT) the logarithm of a sum over all of its prototypes. */
typedef struct {
  double top[KNNPRESS_N_CLASSES], best;
#ifdef KP_SOFT
  double sum[KNNPRESS_N_CLASSES], open; /* open: what distances that were not solved for may have added too much */
#endif
  int certain;
#ifdef KP_REJECT
  double own; /* what distances are too large by */
  int known;  /* whether some class has points as far away as this one */
#endif
} kp_votes;

/* certain: probabilities are wanted. */
static void kp_open(kp_votes *votes, int certain) {
  int c;
  for (c = 0; c < KNNPRESS_N_CLASSES; c++) {
    votes->top[c] = -HUGE_VAL;
#ifdef KP_SOFT
    votes->sum[c] = 0.0;
#endif
  }
#ifdef KP_SOFT
  votes->open = 0.0;
#endif
  votes->best = -HUGE_VAL;
  votes->certain = certain;
#ifdef KP_REJECT
  votes->own = 0.0;
  votes->known = 0;
#endif
}

static void kp_vote(kp_votes *votes, int prototype, double distance) {
  const double score = -KP_SHARPNESS * distance;
  double *top = votes->top + kp_label[prototype];
#ifdef KP_REJECT
  if (distance - votes->own <= kp_farthest[kp_label[prototype]]) votes->known = 1;
#endif
  if (!(score >= -DBL_MAX && score <= DBL_MAX)) return;
  if (score > votes->best) votes->best = score;
#ifdef KP_SOFT
  {
    double *sum = votes->sum + kp_label[prototype];
    if (score > *top)
      *sum = *sum * exp(*top - score) + 1.0;
    else
      *sum += exp(score - *top);
  }
#endif
  if (score > *top) *top = score;
}

static int kp_close(const kp_votes *votes, double *probabilities) {
  double score[KNNPRESS_N_CLASSES], total = 0.0;
  int winner = 0, c;
  if (!(votes->best >= -DBL_MAX)) return -1;
#ifdef KP_REJECT
  if (!votes->known) return -1;
#endif
  for (c = 0; c < KNNPRESS_N_CLASSES; c++) {
    score[c] = votes->top[c];
#ifdef KP_SOFT
    if (votes->sum[c] > 0.0) score[c] += log(votes->sum[c]);
#endif
    if (score[c] > score[winner]) winner = c;
  }
#ifdef KP_SOFT
  if (!votes->certain && votes->open > 0.0)
    for (c = 0; c < KNNPRESS_N_CLASSES; c++)
      if (c != winner && exp(score[c] - votes->best) >= exp(score[winner] - votes->best) - votes->open) return KP_UNSURE;
#endif
  if (probabilities) {
    for (c = 0; c < KNNPRESS_N_CLASSES; c++) {
      probabilities[c] = score[c] >= -DBL_MAX ? exp(KP_TEMPERATURE * (score[c] - score[winner])) : 0.0;
      total += probabilities[c];
    }
    for (c = 0; c < KNNPRESS_N_CLASSES; c++) probabilities[c] /= total;
  }
  return winner;
}
