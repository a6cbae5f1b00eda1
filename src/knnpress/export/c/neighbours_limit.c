
/* What a distance need not be known above. */
static double kp_limit(const kp_votes *votes) {
  return votes->distance[KP_NEIGHBOURS - 1];
}

static double kp_nearest(const kp_votes *votes) {
  return votes->distance[0];
}
