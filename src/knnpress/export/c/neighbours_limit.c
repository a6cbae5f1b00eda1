
/* What a distance need not be known above. */
static double kp_limit(const kp_votes *votes) {
  return votes->distance[KP_NEIGHBOURS - 1];
}
