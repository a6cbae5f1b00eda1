/* The KP_NEIGHBOURS nearest prototypes, nearest first; of equal ones the first in the table. */
typedef struct {
  double distance[KP_NEIGHBOURS];
  int prototype[KP_NEIGHBOURS];
#ifdef KP_REJECT
  double own; /* what distances are too large by */
  int known;  /* whether some class has points as far away as this one */
#endif
} kp_votes;

static void kp_open(kp_votes *votes, int certain) {
  int k;
  (void)certain;
  for (k = 0; k < KP_NEIGHBOURS; k++) {
    votes->distance[k] = HUGE_VAL;
    votes->prototype[k] = 0;
  }
#ifdef KP_REJECT
  votes->own = 0.0;
  votes->known = 0;
#endif
}

static int kp_nearer(const kp_votes *votes, int k, int prototype, double distance) {
  return distance < votes->distance[k] || (distance == votes->distance[k] && prototype < votes->prototype[k]);
}

static void kp_vote(kp_votes *votes, int prototype, double distance) {
  int k;
#ifdef KP_REJECT
  if (distance - votes->own <= kp_farthest[kp_label[prototype]]) votes->known = 1;
#endif
  if (!kp_nearer(votes, KP_NEIGHBOURS - 1, prototype, distance)) return;
  for (k = KP_NEIGHBOURS - 1; k > 0 && kp_nearer(votes, k - 1, prototype, distance); k--) {
    votes->distance[k] = votes->distance[k - 1];
    votes->prototype[k] = votes->prototype[k - 1];
  }
  votes->distance[k] = distance;
  votes->prototype[k] = prototype;
}

/* The class of most of them, of equal ones that with the nearest; their shares are the probabilities. */
static int kp_close(const kp_votes *votes, double *probabilities) {
  int count[KNNPRESS_N_CLASSES] = {0}, most = 0, winner = -1, c, k;
  if (!(votes->distance[KP_NEIGHBOURS - 1] <= DBL_MAX)) return -1;
#ifdef KP_REJECT
  if (!votes->known) return -1;
#endif
  for (k = 0; k < KP_NEIGHBOURS; k++) {
    c = ++count[kp_label[votes->prototype[k]]];
    if (c > most) most = c;
  }
  for (k = KP_NEIGHBOURS - 1; k >= 0; k--)
    if (count[kp_label[votes->prototype[k]]] == most) winner = kp_label[votes->prototype[k]];
  if (probabilities)
    for (c = 0; c < KNNPRESS_N_CLASSES; c++) probabilities[c] = (double)count[c] / KP_NEIGHBOURS;
  return winner;
}
